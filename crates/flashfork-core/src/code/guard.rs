//! Code that is mapped, or becomes executable, while memory is sealed.

use super::{
	Call, Code, Kind, Scratch, file,
	memory::WINDOW,
	own::{Own, first, first_generated},
	remembered::CODE,
	versions::Known,
};
use crate::{
	answers::anonymous,
	arena::Arena,
	never_seal::Reason,
	outcome::{Error, Outcome, Step},
	proc::vma,
	range::Range,
	session::{self, Wait},
	stack::roomy,
	state::STATE,
	sys::{self, PAGE, PROT_READ, Result, Status},
	threads::{alone, errand},
};

/// Before a file is mapped to be executed, or a mapping of it becomes executable. Where it has system calls of its own
/// all memory becomes anonymous again, and stays so.
///
/// An error means that it could not: then the code must not become executable.
///
/// `part`: what of the file is going to be mapped. It may go on behind the code that it begins with: the loader maps
/// all of an object like its first segment, and then the other segments over it.
pub fn before_mapping(fd: i32, part: Range) -> Result<()> {
	if STATE.holds_sealed() { roomy(|| mind_file(fd, part)) } else { Ok(()) }
}

fn mind_file(fd: i32, part: Range) -> Result<()> {
	let file = sys::fstatus(fd)?;
	let first = Range::new(part.start, part.start.saturating_add(PAGE));
	let looked = session::run(Wait::Yes, |arena| {
		let found = match CODE.versions.known(&file, &[first]) {
			_ if CODE.trusts(&file) => None,
			Some(Known::Well) => None,
			Some(Known::Calls(call)) => Some(call),
			None => look_at(fd, &file, part, &mut arena.window),
		};
		match found {
			None => Ok(Outcome::default()),
			Some(_) => Err(Error::Refused(Reason::SystemCalls)),
		}
	});
	if looked.outcome.is_ok() {
		return Ok(());
	}
	drop(looked);
	anonymous::for_good()
}

/// What is wrong with the code of a file that is not mapped yet, and with part of it that is going to be.
fn look_at(fd: i32, file: &Status, part: Range, window: &mut [u8; WINDOW]) -> Option<Call> {
	let size = usize::try_from(file.size).unwrap_or(usize::MAX);
	let mut examine = |only| {
		let mut found = None;
		let examined = Scratch::with(|scratch| {
			let examined = file::examine(fd, size, only, window, scratch, &mut |site| {
				found = Some(site.call);
				false
			});
			CODE.note_maps(scratch);
			examined
		});
		let call = match &examined {
			Ok(examined) if examined.go => Some(Call::Go),
			Ok(examined) if examined.readable => found,
			Ok(_) | Err(_) => found.or(Some(Call::Unreadable)),
		};
		// What couldn't be read this time may be read the next.
		if call != Some(Call::Unreadable) {
			let parts = examined.iter().flat_map(|examined| examined.parts());
			parts.for_each(|part| CODE.versions.remember(file, *part, call, c""));
			CODE.list(0, &Default::default());
		}
		(call, examined.is_ok_and(|examined| examined.parts().iter().any(|code| code.contains(part.start))))
	};
	match examine(None) {
		// What the object's headers say is no code.
		(None, false) => examine(Some(part)).0,
		(call, _) => call,
	}
}

/// The same for memory that is going to be executable: as far as it can be read now, what is in it now counts.
pub fn before_executable(range: Range) -> Result<()> {
	if STATE.holds_sealed() { roomy(|| mind_code(range)) } else { Ok(()) }
}

fn mind_code(range: Range) -> Result<()> {
	let look = |e| Error::System(Step::Look, e);
	let through = |arena: &mut Arena, scratch: &mut Scratch| {
		let alone = alone::alone_now(&mut arena.text).map_err(look)?;
		let Arena { text, window, .. } = arena;
		let mut memory = Own::new((!alone).then_some(window));
		let mut found = None;
		let each = |v: &vma::Vma, path: &[u8]| {
			let part = v.range.intersect(range);
			if found.is_none() && !part.is_empty() && v.prot & PROT_READ != 0 {
				found = match v.kind {
					vma::Kind::File => {
						let code = Code { ranges: &[part], data: &[], kind: Kind::Unlisted, fixed: true };
						let found = first(&mut memory, &code, scratch);
						CODE.note_maps(scratch);
						found.or(memory.failed.then_some(Call::Unreadable))
					}
					_ => first_generated(&mut memory, part)?,
				};
				if let Some(call) = found {
					CODE.culprit.set(call, path);
				}
			}
			Ok(())
		};
		errand::look(|| vma::for_each_mapping(text, each)).map_err(look)?;
		if found.is_some() { Err(Error::Refused(Reason::SystemCalls)) } else { Ok(Outcome::default()) }
	};
	let looked = session::run(Wait::Yes, |arena| {
		Scratch::with(|scratch| through(arena, scratch)).unwrap_or_else(|e| Err(look(e)))
	});
	if looked.outcome.is_ok() {
		return Ok(());
	}
	drop(looked);
	anonymous::for_good()
}
