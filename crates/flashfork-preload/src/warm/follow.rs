//! Wrappers: programs and scripts that become the program proper (`exec`), as `env` does, and those of pyenv. What was
//! told goes with them, and what they set in the environment is set in clones, too.

use super::{
	environ,
	files::{self, Kind, Path},
	message::send,
	recipe::{self, text},
	streams,
	template::{LONGEST_WAY, ORDER, Order, Single},
	threads,
	variables::look_in,
};
use crate::environment::variable;
use core::{
	ffi::{CStr, c_char, c_int},
	fmt::Write,
	mem::{MaybeUninit, size_of},
	ptr::null_mut,
};
use flashfork_core::environment::WARM;
use flashfork_warm::{Tell, WAITS, WORDS_OF_UNFIT, is_dynamic, is_shell, is_wrapper, runs_scripts, starts_another};

/// A table of strings that a null ends.
type Strings = *const *const c_char;

/// Descriptors go there, where a script's own numbers seldom are: bash takes one that is open under such a number, and
/// closed on exec, for its own.
const HIGH: c_int = 791;

/// Keeps what was passed out of the way of a program, and more of it of a wrapper; or notes what wrappers have set.
///
/// # Safety
/// Before the program's own code runs.
pub unsafe fn begin(order: &mut Order) {
	// SAFETY: the order's descriptors; as the caller says.
	unsafe {
		move_high(&mut order.recipe);
		if order.follows {
			[&mut order.control, &mut order.listener, &mut order.directory].into_iter().for_each(|fd| move_high(fd));
		} else if order.is_wrapped() {
			changes::note(false);
		}
	}
}

/// Notes what wrappers have set, of a template with threads.
///
/// # Safety
/// As [`begin`].
pub unsafe fn note_environment() {
	// SAFETY: as the caller says.
	unsafe { changes::note(false) };
}

/// The same with what a function's program has set when it is ready. Of variables that it was not warmed with callers'
/// own count: these are secrets.
///
/// # Safety
/// Nothing else looks at the environment.
pub unsafe fn note_environment_when_ready() {
	// SAFETY: as the caller says; the file is new.
	unsafe {
		if recipe::environment().is_none() {
			recipe::note_environment(recipe::environment_file());
		}
		changes::note(true);
	}
}

/// Takes a descriptor of the engine's out of the way of the program's own numbers. Where that can't be it stays.
///
/// # Safety
/// Nobody else knows of the descriptor yet.
pub unsafe fn move_high(fd: &mut c_int) {
	// SAFETY: as the caller says.
	unsafe {
		let moved = libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, HIGH);
		if moved >= 0 {
			libc::close(core::mem::replace(fd, moved));
		}
	}
}

/// Notes the wrappers that have led here.
///
/// # Safety
/// As [`files::note`].
pub unsafe fn note_files(order: &Order) {
	// SAFETY: as the caller says; paths end with a NUL.
	unsafe {
		for wrapper in order.wrappers().split(|b| *b == b'\n').filter(|path| !path.is_empty()) {
			if let Some(path) = Path::of(&[wrapper]) {
				files::note(Kind::File, CStr::from_ptr(path.as_ptr()));
			}
		}
	}
}

/// Calls an exec function with an environment, in which the order goes along if this program is one that is warmed.
/// `search`: a name without a slash is looked for in `PATH`.
///
/// # Safety
/// As of that function.
pub unsafe fn exec(
	file: *const c_char,
	argv: Strings,
	environment: Strings,
	search: bool,
	run: impl FnOnce(Strings) -> c_int,
) -> c_int {
	// SAFETY: one thread beside those of the program's own, which don't look at the order; a child of `vfork` has
	// another number. The strings are the caller's.
	unsafe {
		let Some(order) = ORDER.get().as_mut().filter(|order| order.pid == libc::getpid()) else {
			return match threads::on_the_way() {
				Some(told) => exec_with_threads(told, (file, search), argv, environment, run),
				None => run(environment),
			};
		};
		exec_along(order, (file, search), argv, environment, run)
	}
}

/// As [`exec`], with the order. Apart, as what follows is: a program that is not warmed may have a small stack.
#[inline(never)]
unsafe fn exec_along(
	order: &mut Order,
	(file, search): (*const c_char, bool),
	argv: Strings,
	environment: Strings,
	run: impl FnOnce(Strings) -> c_int,
) -> c_int {
	// SAFETY: as the caller says.
	unsafe {
		let Some(path) = found(file, search) else { return run(environment) };
		let Some(comes) = what_comes(&path, argv) else { return run(environment) };
		if !has_shim(environment) {
			refuse(order, &path, UNSET);
			return run(environment);
		}
		if starts_another(text(path.as_ptr())) && order.at.is_none() {
			refuse(order, &path, WAITS);
			return run(environment);
		}
		if !streams::are_as_at_start() {
			refuse(order, &path, REDIRECTED);
			return run(environment);
		}
		let mut told = Text::new();
		let way = [order.wrappers(), b"\n", comes.script.as_ref().map_or(b"", |path| text(path.as_ptr()))];
		if write(&mut told, order, comes.follows, way).is_err() {
			return run(environment);
		}
		let Some(mut table) = Table::new(environment, told.at.as_ptr().cast()) else { return run(environment) };
		let passed = order.passed();
		let go_along = |flags: c_int| {
			for fd in passed {
				libc::fcntl(fd, libc::F_SETFD, flags);
			}
		};
		go_along(0);
		let failed = run(table.strings());
		let errno = *libc::__errno_location();
		go_along(libc::FD_CLOEXEC);
		table.drop();
		*libc::__errno_location() = errno;
		failed
	}
}

/// As [`exec`], where the clones are to have all threads: the program that comes says anew where its maker can be made,
/// over a descriptor of a high number, and is ready where this one was to be. What the wrappers have set it finds by
/// the environment of the first.
#[inline(never)]
unsafe fn exec_with_threads(
	(bell, at): (c_int, u8),
	(file, search): (*const c_char, bool),
	argv: Strings,
	environment: Strings,
	run: impl FnOnce(Strings) -> c_int,
) -> c_int {
	// SAFETY: the strings are the caller's; the descriptor is one that nobody else knows of.
	unsafe {
		// What the shim won't be in lets go of it, which its keeper notices. So it does where standard streams were led
		// elsewhere: those of clones would not be.
		let comes = found(file, search).and_then(|path| what_comes(&path, argv));
		if comes.is_none() || !has_shim(environment) || !streams::are_as_at_start() {
			return run(environment);
		}
		let high = |fd| match libc::fcntl(fd, libc::F_DUPFD, HIGH) {
			-1 => libc::fcntl(fd, libc::F_DUPFD, 3),
			moved => moved,
		};
		let file = recipe::environment_file();
		let passed = [high(bell), high(file)];
		libc::close(file);
		let let_go = || {
			for fd in passed {
				libc::close(fd);
			}
		};
		let mut told = Text::new();
		let ([bell, file], name) = (passed, WARM.name.to_bytes());
		let written = told.push(name).and_then(|()| write!(told, "={}{bell},{at},{file}", threads::MARK));
		let table = if passed.contains(&-1) || written.is_err() {
			None
		} else {
			Table::new(environment, told.at.as_ptr().cast())
		};
		let Some(mut table) = table else {
			let_go();
			return run(environment);
		};
		let failed = run(table.strings());
		let errno = *libc::__errno_location();
		let_go();
		table.drop();
		*libc::__errno_location() = errno;
		failed
	}
}

/// What would be run, if it may be.
unsafe fn found(file: *const c_char, search: bool) -> Option<Path> {
	// SAFETY: the string is the caller's; a path ends with a NUL.
	unsafe {
		let name = text(file);
		let path = if search && !name.contains(&b'/') { look_in(places(), name) } else { Path::of(&[name]) };
		path.filter(|path| libc::access(path.as_ptr(), libc::X_OK) == 0)
	}
}

/// Where a name is looked for: `PATH`, or what the C library has in its place (`_CS_PATH` of confstr(3)).
fn places() -> &'static [u8] {
	variable(c"PATH").map_or(b"/bin:/usr/bin", CStr::to_bytes)
}

/// As [`exec`], of the functions that take the process's environment: they find another one there.
///
/// # Safety
/// As there.
pub unsafe fn exec_here(file: *const c_char, argv: Strings, search: bool, run: impl FnOnce() -> c_int) -> c_int {
	// SAFETY: as the caller says; the environment is put back.
	unsafe {
		let before = environ;
		exec(file, argv, before.cast_const().cast(), search, |environment| {
			// Not where it is the same: a child of `vfork` runs in its parent's memory.
			if environment == before.cast_const().cast() {
				return run();
			}
			environ = environment.cast_mut().cast();
			let failed = run();
			environ = before;
			failed
		})
	}
}

/// What a program is.
struct Comes {
	/// Whether it is a wrapper.
	follows: bool,
	/// A script, whose changes count.
	script: Option<Path>,
}

/// None of what the shim wouldn't be in: nothing goes along with it.
fn what_comes(path: &Path, argv: Strings) -> Option<Comes> {
	let mut head = [0u8; 4096];
	let (head, mode) = begin_of(path, &mut head)?;
	if let Some(line) = head.strip_prefix(b"#!") {
		let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
		let by = line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty()).unwrap_or_default();
		return Some(Comes { follows: !runs_scripts(by), script: Path::of(&[text(path.as_ptr())]) });
	}
	let rights = mode & (libc::S_ISUID | libc::S_ISGID) != 0;
	if rights || is_dynamic(head) != Some(true) {
		return None;
	}
	let name = text(path.as_ptr());
	// As `#!/usr/bin/env bash` has it.
	let script = if is_shell(name) { each(argv).skip(1).map(text).find(|word| !word.starts_with(b"-")) } else { None };
	let script = script.and_then(|script| Path::of(&[script])).filter(|script| {
		let mut head = [0; 2];
		begin_of(script, &mut head).is_some_and(|(head, _)| head == b"#!")
	});
	Some(Comes { follows: script.is_some() || is_wrapper(name), script })
}

/// What a file begins with, and its mode.
fn begin_of<'a>(path: &Path, buffer: &'a mut [u8]) -> Option<(&'a [u8], u32)> {
	// SAFETY: a path that ends with a NUL; the buffer and the structure are locals, as long as said.
	let (len, mode) = unsafe {
		let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
		let len = libc::pread(file, buffer.as_mut_ptr().cast(), buffer.len(), 0);
		let mut stat = MaybeUninit::<libc::stat>::zeroed().assume_init();
		let known = libc::fstat(file, &raw mut stat) == 0;
		libc::close(file);
		(len, if known { stat.st_mode } else { 0 })
	};
	Some((buffer.get(..usize::try_from(len).ok()?)?, mode))
}

fn has_shim(environment: Strings) -> bool {
	each(environment).any(|variable| {
		let value = text(variable).strip_prefix(b"LD_PRELOAD=");
		value.is_some_and(|value| value.split(|b| b" :".contains(b)).any(|path| path.ends_with(files::SHIM)))
	})
}

fn each(table: Strings) -> impl Iterator<Item = *const c_char> {
	let mut next = table;
	core::iter::from_fn(move || {
		if next.is_null() {
			return None;
		}
		// SAFETY: a null ends it.
		unsafe {
			let string = *next;
			next = next.add(1);
			(!string.is_null()).then_some(string)
		}
	})
}

const UNSET: &str = "can't be a template: its environment was cleared (env -i, or LD_PRELOAD was unset), and with that flashfork goes; warm that program itself";

const REDIRECTED: &str = "can't be a template: its standard streams were led elsewhere (a redirection), where its clones' would not be; warm that program itself";

/// Says that what comes can't be a template, and why.
fn refuse(order: &Order, path: &Path, why: &str) {
	let mut words = [0; WORDS_OF_UNFIT];
	let path = text(path.as_ptr());
	let path = &path[path.len().saturating_sub(200)..];
	let parts = [b"becomes ", path, b", which ", why.as_bytes()];
	let mut rest = &mut words[..];
	for part in parts {
		let Some((here, behind)) = rest.split_at_mut_checked(part.len()) else { break };
		here.copy_from_slice(part);
		rest = behind;
	}
	send(order.control, Tell::Unfit { words });
}

/// What is told, with its name and a NUL.
struct Text {
	at: [u8; LONGEST_WAY + 512],
	len: usize,
}

impl Text {
	fn new() -> Text {
		Text { at: [0; LONGEST_WAY + 512], len: 0 }
	}

	fn push(&mut self, bytes: &[u8]) -> core::fmt::Result {
		// A NUL stays behind it.
		let end = self.len + bytes.len();
		let place = self.at.get_mut(self.len..end).filter(|_| end < LONGEST_WAY + 512).ok_or(core::fmt::Error)?;
		place.copy_from_slice(bytes);
		self.len = end;
		Ok(())
	}
}

impl Write for Text {
	fn write_str(&mut self, text: &str) -> core::fmt::Result {
		self.push(text.as_bytes())
	}
}

/// As flashfork-templates does (`spawn.rs`).
fn write(into: &mut Text, order: &Order, follows: bool, way: [&[u8]; 3]) -> core::fmt::Result {
	into.push(WARM.name.to_bytes())?;
	let Order { control, listener, directory, recipe, max, starter, .. } = order;
	let (at, renews, follows) = (order.at.map_or(0, |at| at as u8), u8::from(order.renews), u8::from(follows));
	write!(into, "={control},{listener},{directory},{recipe},{at},{max},{renews},{follows},{starter},")?;
	into.push(order.name())?;
	way.iter().try_for_each(|part| into.push(part))
}

/// An environment with one string more.
struct Table {
	at: *mut *const c_char,
	size: usize,
}

impl Table {
	fn new(strings: Strings, more: *const c_char) -> Option<Table> {
		let count = each(strings).count();
		let size = (count + 2) * size_of::<*const c_char>();
		let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
		// SAFETY: new memory, which has room for all of them and a null.
		unsafe {
			let at = libc::mmap(null_mut(), size, prot, flags, -1, 0);
			if at == libc::MAP_FAILED {
				return None;
			}
			let at = at.cast::<*const c_char>();
			each(strings).enumerate().for_each(|(i, string)| at.add(i).write(string));
			at.add(count).write(more);
			Some(Table { at, size })
		}
	}

	fn strings(&mut self) -> Strings {
		self.at
	}

	fn drop(self) {
		// SAFETY: mapped above; nobody uses it any more.
		unsafe { libc::munmap(self.at.cast(), self.size) };
	}
}

/// In a clone: its caller's variables, with what the wrappers have set.
pub fn environment(variables: &'static [*mut c_char]) -> &'static [*mut c_char] {
	changes::apply(variables)
}

mod changes {
	//! What wrappers have made of the environment.

	use super::*;

	const MOST: usize = 1024;

	/// What counts for the program warmed alone.
	const OWN: [&[u8]; 8] =
		[b"_", b"PWD", b"OLDPWD", b"SHLVL", b"LD_PRELOAD", b"NUMEXPR_NUM_THREADS", b"FLASHFORK_WARM", b"LINES"];

	struct Changes {
		noted: bool,
		when_ready: bool,
		set: [*mut c_char; MOST],
		count: usize,
		/// Names, with their values.
		gone: [&'static [u8]; MOST],
		gone_count: usize,
	}

	static CHANGES: Single<Changes> = Single::new(Changes {
		noted: false,
		when_ready: false,
		set: [null_mut(); MOST],
		count: 0,
		gone: [&[]; MOST],
		gone_count: 0,
	});

	/// Whether it was warmed with this variable.
	fn is_known(of: &[u8]) -> bool {
		recipe::environment().into_iter().flatten().any(|old| name(old.to_bytes()) == of)
	}

	fn name(string: &[u8]) -> &[u8] {
		string.split(|b| *b == b'=').next().unwrap_or_default()
	}

	fn value(string: &[u8]) -> &[u8] {
		string.get(name(string).len() + 1..).unwrap_or_default()
	}

	/// What was put before and behind an old value, as a list's new parts are. `None`: it is another value, whatever
	/// it has in common with the old one.
	fn around<'a>(new: &'a [u8], old: &[u8]) -> Option<[&'a [u8]; 2]> {
		let parts = |byte: &u8| b":, ;".contains(byte);
		let (before, behind) = (new.strip_suffix(old), new.strip_prefix(old));
		match (before, behind) {
			_ if old.is_empty() => None,
			(_, Some(behind)) if behind.first().is_some_and(parts) => Some([b"", behind]),
			(Some(before), _) if before.last().is_some_and(parts) => Some([before, b""]),
			_ => {
				let place = (1..new.len().checked_sub(old.len())?).find(|at| {
					let end = at + old.len();
					new[*at..end] == *old && parts(&new[at - 1]) && parts(&new[end])
				})?;
				Some([&new[..place], &new[place + old.len()..]])
			}
		}
	}

	/// Compares this process's with the one in which it was warmed.
	///
	/// # Safety
	/// Nothing else looks at the environment.
	pub unsafe fn note(when_ready: bool) {
		// SAFETY: no other reference is in use.
		let changes = unsafe { CHANGES.get() };
		(changes.count, changes.gone_count, changes.when_ready) = (0, 0, when_ready);
		let Some(before) = recipe::environment() else { return };
		// SAFETY: a table that a null ends; strings are copied, because programs write over their environment.
		unsafe {
			let here = || each(environ.cast_const().cast());
			for string in here() {
				let (name, value) = (name(text(string)), value(text(string)));
				if OWN.contains(&name) || is_known(name) && recipe::variable(name) == value {
					continue;
				}
				if let Some(place) = changes.set.get_mut(changes.count) {
					*place = libc::strdup(string);
					changes.count += 1;
				}
			}
			for old in before.map(CStr::to_bytes).filter(|old| !OWN.contains(&name(old))) {
				if !here().any(|string| name(text(string)) == name(old))
					&& let Some(place) = changes.gone.get_mut(changes.gone_count)
				{
					*place = name(old);
					changes.gone_count += 1;
				}
			}
			changes.noted = true;
		}
	}

	pub fn apply(variables: &'static [*mut c_char]) -> &'static [*mut c_char] {
		// SAFETY: no other reference is in use.
		let changes = unsafe { CHANGES.get() };
		if !changes.noted {
			return variables;
		}
		let callers = |of: &[u8]| variables.iter().map(|v| text(*v)).find(|v| name(v) == of).map(value);
		for at in (0..changes.count).rev().filter(|_| changes.when_ready) {
			let name = name(text(changes.set[at]));
			if callers(name).is_some() && !is_known(name) {
				changes.count -= 1;
				changes.set.swap(at, changes.count);
			}
		}
		let (set, gone) = (&changes.set[..changes.count], &changes.gone[..changes.gone_count]);
		let table = (variables.len() + set.len() + 1) * size_of::<*mut c_char>();
		let room = |string: &*mut c_char| text(*string).len() + callers(name(text(*string))).map_or(0, <[u8]>::len) + 1;
		let size = table + set.iter().map(room).sum::<usize>();
		let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
		// SAFETY: new memory, zeros, with room for the table, its null, and all texts, each with its NUL.
		unsafe {
			let at = libc::mmap(null_mut(), size, prot, flags, -1, 0);
			if at == libc::MAP_FAILED {
				return variables;
			}
			let (first, mut texts) = (at.cast::<*mut c_char>(), at.cast::<u8>().add(table));
			let mut count = 0;
			let changed = |of: &[u8]| gone.contains(&of) || set.iter().any(|string| name(text(*string)) == of);
			for variable in variables.iter().filter(|variable| !changed(name(text(**variable)))) {
				first.add(count).write(*variable);
				count += 1;
			}
			for string in set {
				let (name, new) = (name(text(*string)), value(text(*string)));
				first.add(count).write(texts.cast());
				count += 1;
				// What was put before or behind the old value is put there in the caller's.
				let parts = match (around(new, recipe::variable(name)), callers(name)) {
					(Some([before, behind]), Some(caller)) => [before, caller, behind],
					_ => [new, &[], &[]],
				};
				for part in [name, b"="].into_iter().chain(parts) {
					texts.copy_from_nonoverlapping(part.as_ptr(), part.len());
					texts = texts.add(part.len());
				}
				texts = texts.add(1);
			}
			core::slice::from_raw_parts(first, count)
		}
	}
}
