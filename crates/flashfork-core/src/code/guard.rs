//! Code that is mapped, or becomes executable, while memory is sealed.

use super::own::{Own, first, first_generated};
use super::process::judge;
use super::remembered::CODE;
use super::{Call, Code, Kind, Scratch, file};
use crate::answers::anonymous;
use crate::arena::Arena;
use crate::never_seal::Reason;
use crate::outcome::{Error, Outcome, Step};
use crate::proc::vma;
use crate::range::Range;
use crate::session::{self, Wait};
use crate::stack::roomy;
use crate::state::STATE;
use crate::sys::{self, PROT_READ, Result};
use crate::threads::{alone, errand};

/// Before a file is mapped to be executed, or a mapping of it becomes executable. Where it has system calls of its own
/// all memory becomes anonymous again, and stays so.
///
/// An error means that it could not: then the code must not become executable.
pub fn before_mapping(fd: i32) -> Result<()> {
    if STATE.holds_sealed() { roomy(|| mind_file(fd)) } else { Ok(()) }
}

fn mind_file(fd: i32) -> Result<()> {
    let file = sys::fstatus(fd)?;
    let looked = session::run(Wait::Yes, |arena| {
        let found = judge(Some(&file), || {
            let mut found = None;
            let size = usize::try_from(file.size).unwrap_or(usize::MAX);
            let examined = Scratch::with(|scratch| {
                file::examine(fd, size, &mut arena.window, scratch, &mut |site| {
                    found = Some(site.call);
                    false
                })
            });
            match examined.map(|examined| (examined.go, examined.readable)) {
                Ok((true, _)) => Some(Call::Go),
                Ok((false, true)) => found,
                Ok((false, false)) | Err(_) => found.or(Some(Call::Unreadable)),
            }
        });
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
                        found.or(memory.failed.then_some(Call::Unreadable))
                    }
                    _ => first_generated(&mut memory, part, scratch),
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
