//! Guests that go over their memory, and the times the monitor took.

use flashfork_proto::shell::{Ended, FromShell};
use flashfork_vmm::pool::Shell;

use super::code::{self, Access};
use super::measured::{Cell, Results};
use crate::order::shuffled_rounds;
use crate::size::Size;
use crate::vm_host::{Host, MemoryPages, Template, expect, shape, vm};
use crate::{BenchError, Progress};

/// Boots and clones one guest of each kind a round.
pub(super) fn measure(
    host: &Host,
    pages: &[MemoryPages],
    rounds: usize,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let cell = |pages, access| Cell { access, pages, huge_fraction: 0.0, booted: Vec::new(), clone: Vec::new() };
    results.cells = Access::ALL.iter().flat_map(|access| pages.iter().map(|pages| cell(*pages, *access))).collect();
    progress.begin(&format!("four passes over {}", Size(results.size)), (rounds * results.cells.len()) as u64);
    for order in shuffled_rounds(rounds, results.cells.len(), results.size) {
        for index in order {
            once(host, results.size, &mut results.cells[index])?;
            progress.step();
        }
    }
    Ok(())
}

fn once(host: &Host, size: u64, cell: &mut Cell) -> Result<(), BenchError> {
    let shape = shape(size, cell.pages.of_shape());
    let end = u32::try_from(size).map_err(|_| vm("a guest of 32 bits has no such memory"))?;
    let shell = host.boot(shape, &code::passes(cell.access, end))?;
    let booted = laps(&shell)?;
    let template = match cell.pages {
        // As the guest left it. Pages it only read are there as well.
        MemoryPages::Hugetlb => Template::freeze_as_it_is(&shell, shape, cell.pages)?,
        // The monitor puts on 2 MB pages what it can: a copy of the template is on those that are asked for, all of it.
        MemoryPages::Small | MemoryPages::Thp => Template::freeze(&shell, shape, cell.pages, false)?,
    };
    drop(shell);
    // The monitor boots no guest on 2 MB pages of the kernel's making.
    if cell.pages != MemoryPages::Thp {
        cell.booted.push(booted);
    }
    cell.huge_fraction = template.huge_fraction;
    let shell = host.shell(shape)?;
    template.claim(&shell, cell.clone.len() as u64)?;
    cell.clone.push(laps(&shell)?);
    let end = |message| if let FromShell::Ended(ended) = message { Some(ended) } else { None };
    match expect(&shell, end, "end")? {
        Ended::Done(done) if done.status == 0 => Ok(()),
        other => Err(vm(format!("a clone went over its memory and ended: {other:?}"))),
    }
}

/// The nanoseconds of two passes.
fn laps(shell: &Shell) -> Result<[u64; 2], BenchError> {
    let lap = || {
        let lap = |message| if let FromShell::Lap(ns) = message { Some(ns) } else { None };
        expect(shell, lap, "time its passes")
    };
    // Until the timer was started.
    lap()?;
    Ok([lap()?, lap()?])
}
