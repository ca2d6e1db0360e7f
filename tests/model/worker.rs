//! The tested process.

use crate::content::PAGE;
use crate::journal::{Journal, Places};
use crate::template::Template;
use crate::world::World;
use crate::world::space::Space;
use flashfork_tests::route::Route;
use std::process::ExitCode;

/// Runs a seed in this process and prints the most pages that were sealed at once.
pub fn run(seed: u64, steps: usize, route: Route, places: &Places) -> ExitCode {
    match prepare(seed, route, places) {
        Ok(mut world) => {
            let result = world.walk(steps);
            if result.is_ok() {
                println!("{}", world.most_sealed);
                return ExitCode::SUCCESS;
            }
            world.end(result)
        }
        Err(message) => {
            eprintln!("model: {message}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(seed: u64, route: Route, places: &Places) -> Result<World, String> {
    let template = Template::new().map_err(|e| format!("no file to map: {e}"))?;
    let journal = Journal::open(places, "p")?;
    let space = Space::new(own_heap()?);
    Ok(World::new(seed, route, journal, space, template))
}

/// Gives libc as much of the heap as it will need, so that it does not move the break itself any more; what lies behind is under
/// test. Returns where that starts.
fn own_heap() -> Result<usize, String> {
    const FOR_LIBC: i32 = 16 << 20;
    // SAFETY: one thread; the first allocation after the change makes room, and the rest goes to mmap.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, FOR_LIBC);
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        // More than what is free now, less than what goes to mmap: the heap must grow.
        let blocks: Vec<_> = (0..4).map(|_| std::hint::black_box(libc::malloc(100 << 10))).collect();
        for block in blocks {
            libc::free(block);
        }
        let end = libc::sbrk(0) as usize;
        let aligned = end.next_multiple_of(PAGE);
        libc::sbrk((aligned - end) as isize);
        if libc::sbrk(0) as usize != aligned {
            return Err("the heap can't be extended".into());
        }
        Ok(aligned)
    }
}
