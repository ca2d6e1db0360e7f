//! Region: memory of the caller's own that goes back to how it was, as often as wanted, in microseconds.
//!
//! Its pages are born in a memfd, on 2 MB pages where the kernel gives them, mapped shared. Sealing it is then one
//! `mmap`: the same memfd privately over the same addresses. From there on a written page is a copy, and dropping the
//! copies (`MADV_DONTNEED`) is the rollback. Dropping the whole range beats looking for the written pages first: the
//! page tables are walked in either case, and a run dropped by a call of its own costs a flush of its own.
//!
//! The memfd's name is not [`MEMFD_PREFIX`](crate::MEMFD_PREFIX): to a seal of the process a region is a file, which it
//! leaves alone, and forks skip its page tables as those of sealed memory.

use crate::outcome::Pages;
use crate::proc::headroom::Limits;
use crate::range::Range;
use crate::seal::copy::{CHUNK, Window};
use crate::seal::limits::SLACK;
use crate::seal::limits::ThpAllowed;
use crate::seal::remap::ATTEMPTS;
use crate::sys::{self, Errno, HUGE, MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, RLIMIT_FSIZE};
use crate::sys::{PROT_NONE, PROT_READ, PROT_WRITE, Result};
use linux_raw_sys::general as k;

/// The step of a region's life at which a system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Finding addresses.
    Reserve,
    /// Making the memfd, `RLIMIT_FSIZE` included.
    CreateMemfd,
    /// Mapping the memfd.
    Map,
    /// Sealing the memfd against writes. `EBUSY`: the kernel or a device still writes there (I/O under way).
    AddSeals,
    /// Dropping the written pages.
    Drop,
}

/// Why a call failed. A region whose seal failed is unsealed, its bytes as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The length is 0, or more than there are addresses.
    Length,
    /// The region is sealed already.
    Sealed,
    /// The region isn't sealed: there is nothing to go back to.
    NotSealed,
    /// A system call failed.
    System(Step, Errno),
}

/// See the module. Dropping it unmaps it.
#[derive(Debug)]
pub struct Region {
    reserved: Range,
    range: Range,
    /// The memfd; closed by the seal.
    fd: Option<i32>,
    huge: usize,
}

impl Region {
    /// Maps a region of `len` bytes, rounded up to 2 MB, all zeros, at an address that is a multiple of 2 MB.
    ///
    /// With [`Pages::Auto`] its memory is taken at once where there is enough of it; with [`Pages::Small`], and where
    /// there are no 2 MB pages, as it is touched.
    pub fn map(len: usize, pages: Pages) -> core::result::Result<Region, Error> {
        let at = |step| move |e| Error::System(step, e);
        let len = len.checked_next_multiple_of(HUGE).filter(|len| *len > 0).ok_or(Error::Length)?;
        let whole = len.checked_add(HUGE).ok_or(Error::Length)?;
        // A file longer than the limit would come with a signal (SIGXFSZ).
        if sys::getrlimit(RLIMIT_FSIZE).map_err(at(Step::CreateMemfd))?[0] < len as u64 {
            return Err(Error::System(Step::CreateMemfd, Errno::EFBIG));
        }
        // SAFETY: a fresh mapping that nothing may access.
        let start = unsafe { sys::mmap(0, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) };
        let start = start.map_err(at(Step::Reserve))?;
        let aligned = start.next_multiple_of(HUGE);
        let mut region = Region {
            reserved: Range::new(start, start + whole),
            range: Range::new(aligned, aligned + len),
            fd: None,
            huge: 0,
        };
        let fd = sys::memfd_create(c"flashfork-region").map_err(at(Step::CreateMemfd))?;
        region.fd = Some(fd);
        sys::ftruncate(fd, len as u64).map_err(at(Step::CreateMemfd))?;
        if pages == Pages::Auto {
            region.huge = make_huge(fd, len);
        }
        region.map_shared(fd).map_err(at(Step::Map))?;
        Ok(region)
    }

    /// Its addresses.
    pub fn range(&self) -> Range {
        self.range
    }

    /// How many of its bytes are on 2 MB pages.
    pub fn huge(&self) -> usize {
        self.huge
    }

    /// Whether there is a state to go back to.
    pub fn is_sealed(&self) -> bool {
        self.fd.is_none()
    }

    /// Makes what the region holds now the state that [`Region::rollback`] goes back to. Nothing is copied.
    pub fn seal(&mut self) -> core::result::Result<(), Error> {
        let fd = self.fd.ok_or(Error::Sealed)?;
        let flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
        let Range { start, .. } = self.range;
        // SAFETY: the same bytes, mapped privately over themselves.
        let mapped = unsafe { sys::mmap(start, self.range.len(), PROT_READ | PROT_WRITE, flags, fd, 0) };
        let done = mapped.map_err(|e| Error::System(Step::Map, e)).and_then(|_| {
            // Whoever else maps it to write (a device, I/O under way) is found here.
            sys::add_seals(fd).map_err(|e| Error::System(Step::AddSeals, e))
        });
        if let Err(error) = done {
            // Before Linux 6.12 a failed mmap may have left a hole, and running on with memory missing would be worse
            // than ending.
            for _ in 0..ATTEMPTS {
                if self.map_shared(fd).is_ok() {
                    return Err(error);
                }
                sys::pause_briefly();
            }
            sys::die(sys::getpid());
        }
        self.fd = None;
        sys::close(fd);
        Ok(())
    }

    /// Undoes every write to the region since its seal, in this process.
    ///
    /// On an error the region is partly rolled back: somebody unmapped a part of it.
    pub fn rollback(&mut self) -> core::result::Result<(), Error> {
        if self.fd.is_some() {
            return Err(Error::NotSealed);
        }
        let Range { start, .. } = self.range;
        // SAFETY: the region is the caller's, who asks for just that.
        unsafe { sys::madvise(start, self.range.len(), k::MADV_DONTNEED_LOCKED) }
            .map_err(|e| Error::System(Step::Drop, e))
    }

    /// Maps the memfd shared. A clone made now would write into its parent's memory, so clones don't get it.
    fn map_shared(&self, fd: i32) -> Result<()> {
        let Range { start, .. } = self.range;
        // SAFETY: the addresses are the region's own, and the memfd holds its bytes.
        unsafe {
            sys::mmap(start, self.range.len(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0)?;
            sys::madvise(start, self.range.len(), k::MADV_DONTFORK)
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is the region's own and nobody may use it any more. A failure would leak it, no more.
        let _ = unsafe { sys::munmap(self.reserved.start, self.reserved.len()) };
        if let Some(fd) = self.fd {
            sys::close(fd);
        }
    }
}

/// Puts 2 MB pages into a memfd while there are any and memory is not short; returns how many bytes of it have them.
fn make_huge(fd: i32, len: usize) -> usize {
    let mut text = [0; 16 * 1024];
    let mut small = [0; 4096];
    let Ok(memory) = Limits::find(&mut text, &mut small) else { return 0 };
    let Ok(mut window) = Window::reserve() else { return 0 };
    if !window.holds_chunk() {
        return 0;
    }
    let _thp = ThpAllowed::set();
    let mut done = 0;
    while done < len {
        let chunk = CHUNK.min(len - done);
        let ample = memory.headroom(&mut text).is_ok_and(|free| free >= (chunk as u64) + SLACK);
        if !ample || window.make_huge(fd, done as u64, chunk).is_err() {
            break;
        }
        done += chunk;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PAGE;

    fn bytes(region: &mut Region) -> &mut [u8] {
        let Range { start, .. } = region.range();
        // SAFETY: the region is mapped and ours.
        unsafe { core::slice::from_raw_parts_mut(start as *mut u8, region.range().len()) }
    }

    fn filled(pages: Pages) -> Region {
        let mut region = Region::map(3 * HUGE - 5, pages).unwrap();
        assert_eq!(region.range().len(), 3 * HUGE);
        assert!(region.range().start.is_multiple_of(HUGE));
        assert!(bytes(&mut region).iter().all(|b| *b == 0));
        for (i, page) in bytes(&mut region).chunks_exact_mut(PAGE).enumerate() {
            page.fill(i as u8);
        }
        region
    }

    fn intact(region: &mut Region) -> bool {
        bytes(region).chunks_exact(PAGE).enumerate().all(|(i, page)| page.iter().all(|b| *b == i as u8))
    }

    #[test]
    fn goes_back_to_what_it_was_as_often_as_wanted() {
        for pages in [Pages::Auto, Pages::Small] {
            let mut region = filled(pages);
            assert!(pages == Pages::Auto || region.huge() == 0);
            region.seal().unwrap();
            assert!(region.is_sealed() && intact(&mut region));
            for turn in 1..50 {
                for page in bytes(&mut region).chunks_exact_mut(PAGE).step_by(turn) {
                    page.fill(0xee);
                }
                assert!(!intact(&mut region));
                region.rollback().unwrap();
                assert!(intact(&mut region), "turn {turn}");
            }
        }
    }

    #[test]
    fn misuse_is_told() {
        assert_eq!(Region::map(0, Pages::Auto).unwrap_err(), Error::Length);
        assert_eq!(Region::map(usize::MAX - 5, Pages::Auto).unwrap_err(), Error::Length);
        assert_eq!(Region::map(1 << 60, Pages::Small).unwrap_err(), Error::System(Step::Reserve, Errno::ENOMEM));
        let mut region = filled(Pages::Small);
        assert_eq!(region.rollback(), Err(Error::NotSealed));
        region.seal().unwrap();
        assert_eq!(region.seal(), Err(Error::Sealed));
    }

    #[test]
    fn a_region_that_something_else_maps_to_write_stays_unsealed() {
        let mut region = filled(Pages::Small);
        let fd = region.fd.unwrap();
        // SAFETY: a second mapping of the same memfd.
        let other = unsafe { sys::mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0).unwrap() };
        assert_eq!(region.seal(), Err(Error::System(Step::AddSeals, Errno::EBUSY)));
        assert!(!region.is_sealed() && intact(&mut region));
        // SAFETY: the mapping just made.
        unsafe { sys::munmap(other, HUGE).unwrap() };
        region.seal().unwrap();
        assert!(intact(&mut region));
    }

    #[test]
    fn locked_memory_rolls_back_and_a_hole_is_an_error() {
        let mut region = filled(Pages::Small);
        region.seal().unwrap();
        sys::mlock(region.range().start, 4 * PAGE, false).unwrap();
        bytes(&mut region)[0] = 77;
        region.rollback().unwrap();
        assert!(intact(&mut region));
        // SAFETY: nobody uses the page any more.
        unsafe { sys::munmap(region.range().start + HUGE, PAGE).unwrap() };
        assert_eq!(region.rollback(), Err(Error::System(Step::Drop, Errno::ENOMEM)));
    }
}
