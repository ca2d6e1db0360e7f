//! Dense: blocks of which the program writes much lie on anonymous huge pages again.
//!
//! Such a block costs a fork as much as if it had never been sealed, entry by entry. Sealed anew it would be written
//! again, with a fault and a copy for each page. On a huge page of its own it costs a fork one entry, and a write
//! nothing while no clone shares it. So the engine `seal`, when it seals anew, makes these blocks anonymous, neighbours
//! together: an island among sealed memory costs a fork three times as much.
//!
//! A write to a huge page that a clone shares splits it (`do_huge_pmd_wp_page` in mm/huge_memory.c). Then the block is
//! memory like any other, which the next seal takes. Until then it stays as it is.
//!
//! `MADV_COLLAPSE` makes the huge pages: it asks for no advice, which the program would see, and whether the program is
//! to get huge pages by itself is not its question (madvise(2)).

use super::unseal;
use crate::apart::Apart;
use crate::arena::Arena;
use crate::outcome::Error;
use crate::proc::pagemap::Pagemap;
use crate::proc::scan::{self, Ask, Region};
use crate::range::Range;
use crate::sys::{HUGE, Result};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Most groups of neighbours. What is beyond stays sealed.
pub const PLACES: usize = 64;

/// What this process knows of its own.
pub(crate) static DENSE: Apart<Dense> = Apart::new(Dense::new());

/// Where such blocks are. Clones inherit it with their memory.
pub(crate) struct Dense([[AtomicUsize; 2]; PLACES]);

impl Dense {
    const fn new() -> Dense {
        Dense([const { [const { AtomicUsize::new(0) }; 2] }; PLACES])
    }

    fn all(&self) -> impl Iterator<Item = (&[AtomicUsize; 2], Range)> {
        self.0.iter().map(|place| (place, Range::new(place[0].load(SeqCst), place[1].load(SeqCst))))
    }

    /// Whether a block is such a one.
    pub fn has(&self, block: Range) -> bool {
        self.all().any(|(_, known)| known.intersect(block) == block)
    }

    /// Forgets those that are no longer on huge pages of this process.
    fn look(&self, regions: &mut [Region]) -> Result<()> {
        if self.all().all(|(_, range)| range.is_empty()) {
            return Ok(());
        }
        let mut pagemap = Pagemap::open(regions)?;
        for (place, range) in self.all().filter(|(_, range)| !range.is_empty()) {
            if !are_huge(&mut pagemap, range) {
                place[1].store(range.start, SeqCst);
            }
        }
        Ok(())
    }

    /// Where there is no room it is sealed the next time.
    fn add(&self, range: Range) {
        if let Some((place, _)) = self.all().find(|(_, known)| known.is_empty()) {
            place[0].store(range.start, SeqCst);
            place[1].store(range.end, SeqCst);
        }
    }
}

fn are_huge(pagemap: &mut Pagemap, range: Range) -> bool {
    let ask = Ask { all: scan::HUGE_PAGE | scan::PRESENT, none: scan::FILE, told: scan::HUGE_PAGE, ..Ask::default() };
    let mut bytes = 0;
    let asked = pagemap.scan(range, ask, |found| {
        bytes += found.range().intersect(range).len();
        Ok(())
    });
    asked.is_ok() && bytes == range.len()
}

/// The dense blocks that a plan has found.
#[derive(Clone, Copy)]
pub struct Found {
    groups: [Range; PLACES],
    count: usize,
}

impl Found {
    /// None.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds one behind those that there are: whole blocks alone can be huge pages.
    pub fn add(&mut self, block: Range) {
        match self.groups[..self.count].last_mut() {
            _ if block.len() < HUGE => {}
            Some(last) if last.end == block.start => last.end = block.end,
            _ => {
                if let Some(place) = self.groups.get_mut(self.count) {
                    *place = block;
                    self.count += 1;
                }
            }
        }
    }
}

/// Before a plan: looks which blocks still are as they were made.
pub fn begin(arena: &mut Arena) -> Result<()> {
    arena.dense.clear();
    DENSE.look(&mut arena.regions)
}

/// Has the blocks that the plan has found lie on huge pages. What can't stays sealed, and correct.
pub fn make_huge(arena: &mut Arena) {
    let found = arena.dense;
    // Without PAGEMAP_SCAN nobody could tell later whether they still are.
    if found.count == 0 || !Pagemap::open(&mut arena.regions).is_ok_and(|pagemap| pagemap.has_scan()) {
        return;
    }
    for group in &found.groups[..found.count] {
        match unseal::to_huge(arena, *group) {
            Ok(true) => DENSE.add(*group),
            // Where there are none, or the host has to find them first, there will be none for the next.
            Err(Error::Refused(_)) | Ok(false) => return,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_together_and_odd_ends_are_left() {
        let mut found = Found { groups: [Range::default(); PLACES], count: 0 };
        let block = |i: usize| Range::new(i * HUGE, (i + 1) * HUGE);
        for i in [1, 2, 3, 5] {
            found.add(block(i));
        }
        found.add(Range::new(6 * HUGE, 6 * HUGE + 4096));
        assert_eq!(found.groups[..found.count], [Range::new(HUGE, 4 * HUGE), block(5)]);
        (0..PLACES).for_each(|i| found.add(block(10 + 2 * i)));
        assert_eq!(found.count, PLACES, "no room for more");
    }

    #[test]
    fn what_is_known_is_whole_blocks_and_makes_room_for_others() {
        let dense = Dense::new();
        assert!(!dense.has(Range::new(HUGE, 2 * HUGE)));
        dense.add(Range::new(HUGE, 3 * HUGE));
        assert!(dense.has(Range::new(2 * HUGE, 3 * HUGE)) && !dense.has(Range::new(2 * HUGE, 4 * HUGE)));
        // Nothing is mapped there.
        dense.look(&mut [Region::default(); 8]).unwrap();
        assert!(!dense.has(Range::new(HUGE, 2 * HUGE)));
        (1..=PLACES + 1).for_each(|i| dense.add(Range::new(2 * i * HUGE, (2 * i + 1) * HUGE)));
        assert!(dense.has(Range::new(2 * PLACES * HUGE, (2 * PLACES + 1) * HUGE)), "the first place was free again");
    }
}
