use super::*;
use crate::sys::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};

fn populated(map: &mut Pagemap, range: Range) -> Vec<usize> {
	let mut pages = Vec::new();
	map.for_each(range, Which::Populated, |r| {
		pages.extend((r.start..r.end).step_by(PAGE).map(|a| (a - range.start) / PAGE));
	})
	.unwrap();
	pages
}

/// A fresh mapping of small pages, of which these are written to.
fn mapping_of(pages: usize, written: &[usize]) -> Range {
	let len = pages * PAGE;
	// SAFETY: our own fresh mapping.
	let at = unsafe {
		let at = sys::mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0).unwrap();
		sys::madvise(at, len, linux_raw_sys::general::MADV_NOHUGEPAGE).unwrap();
		at
	};
	for page in written {
		// SAFETY: inside the mapping.
		unsafe { (at as *mut u8).add(page * PAGE).write(1) };
	}
	Range::new(at, at + len)
}

#[test]
fn finds_the_touched_pages_both_ways() {
	let range = mapping_of(700, &[0, 1, 5, 511, 512, 699]);
	let mut buf = vec![Region::default(); 3];
	let mut map = Pagemap::open(&mut buf).unwrap();
	if map.has_scan() {
		assert_eq!(populated(&mut map, range), [0, 1, 5, 511, 512, 699]);
	}
	map.scan = false;
	assert_eq!(populated(&mut map, range), [0, 1, 5, 511, 512, 699]);
	// SAFETY: the mapping is ours.
	unsafe { sys::munmap(range.start, range.len()).unwrap() };
}

#[test]
fn reports_no_page_twice_however_many_regions_there_are() {
	let wanted: Vec<usize> = (0..6000).step_by(2).collect();
	let range = mapping_of(6000, &wanted);
	for regions in [1, 511, 512, 513, 1500, 3000, 3001] {
		let mut buf = vec![Region::default(); regions];
		let mut map = Pagemap::open(&mut buf).unwrap();
		assert_eq!(populated(&mut map, range), wanted, "{regions} regions");
	}
	// SAFETY: the mapping is ours.
	unsafe { sys::munmap(range.start, range.len()).unwrap() };
}
