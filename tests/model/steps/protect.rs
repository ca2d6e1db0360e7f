//! `mprotect(2)`, and code made at run time: written, made executable, called.

use super::map::protection;
use crate::{
	content::PAGE,
	journal::Expect,
	world::{World, check::Depth, table::attr},
};
use flashfork_tests::{Result, route::errno};
use libc::c_int;
use std::ops::Range;

impl World {
	pub fn step_protect(&mut self) -> Result {
		if self.rng.chance(15) {
			return self.run_code();
		}
		let Some(range) = self.range() else { return Ok(()) };
		let prot = self.rng.weighted(&[
			(55, libc::PROT_READ | libc::PROT_WRITE),
			(20, libc::PROT_READ),
			(8, libc::PROT_NONE),
			(7, libc::PROT_READ | libc::PROT_EXEC),
			(7, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
			(3, libc::PROT_WRITE),
		]);
		// Of a library that is not all there nobody can tell what is code: a seal would be refused from then on.
		let prot = if self.mapped.is_some() { prot & !libc::PROT_EXEC } else { prot };
		self.protect(range, prot)
	}

	pub fn protect(&mut self, range: Range<usize>, prot: c_int) -> Result {
		// The kernel changes what comes before the first gap.
		let end = range.clone().find(|p| !self.table.mapped(*p)).unwrap_or(range.end);
		let expected = if end < range.end { Err(libc::ENOMEM) } else { Ok(0) };
		let space = self.space;
		let text = format!("mprotect {range:?} {prot}");
		self.journal.call(&text, Expect::Exactly(expected), || {
			// SAFETY: only memory under test changes its protection.
			let result = unsafe { libc::mprotect(space.addr(range.start) as *mut _, range.len() * PAGE, prot) };
			if result < 0 { Err(errno()) } else { Ok(0) }
		})?;
		for page in range.start..end {
			self.table.clear(page, attr::PROT);
			self.table.set(page, protection(prot));
		}
		if self.rng.chance(30) { self.check(range, Depth::Written) } else { Ok(()) }
	}

	/// What a compiler at run time does, in place of what the page held.
	fn run_code(&mut self) -> Result {
		let Some(range) = self.uniform() else { return Ok(()) };
		let page = range.start;
		if !self.writable(page) || self.table.has(page, attr::SHARED) {
			return Ok(());
		}
		let before = self.table.attr(page);
		let prot = [(attr::READ, libc::PROT_READ), (attr::WRITE, libc::PROT_WRITE), (attr::EXEC, libc::PROT_EXEC)]
			.iter()
			.filter(|(a, _)| before & a != 0)
			.map(|(_, p)| p)
			.sum();
		let number = self.rng.next() as u32;
		let mut code = [0xb8, 0, 0, 0, 0, 0xc3]; // mov eax, number; ret
		code[1..5].copy_from_slice(&number.to_le_bytes());
		let at = self.space.addr(page) as *mut u8;
		// SAFETY: the page is writable and under test.
		unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
		self.protect_quietly(page, libc::PROT_READ | libc::PROT_EXEC)?;
		// SAFETY: the six bytes are a function without arguments that returns an int.
		let function = unsafe { std::mem::transmute::<*mut u8, extern "C" fn() -> u32>(at) };
		let got = function();
		if got != number {
			return Err(format!("code in page {page} returned {got}, not {number}"));
		}
		self.protect_quietly(page, libc::PROT_READ | libc::PROT_WRITE)?;
		self.write_pages(page..page + 1);
		self.protect_quietly(page, prot)
	}

	fn protect_quietly(&mut self, page: usize, prot: c_int) -> Result {
		let space = self.space;
		self.journal.call(&format!("mprotect {page} {prot} for code"), Expect::Exactly(Ok(0)), || {
			// SAFETY: as above.
			let result = unsafe { libc::mprotect(space.addr(page) as *mut _, PAGE, prot) };
			if result < 0 { Err(errno()) } else { Ok(0) }
		})?;
		self.table.clear(page, attr::PROT);
		self.table.set(page, protection(prot));
		Ok(())
	}
}
