//! A loaded ELF object, as far as its functions' addresses are asked for (`elf(5)`).

use crate::{
	range::Range,
	sys::{self, PAGE, Result},
};
use core::{
	cell::{Cell, RefCell},
	ffi::CStr,
};

const MAGIC: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PF_W: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

/// See the module.
pub struct Object<'a> {
	reader: &'a Reader,
	/// What is added to the addresses in the file.
	bias: usize,
	headers: usize,
	header_count: u32,
	symbols: usize,
	strings: usize,
	table: Table,
}

/// How symbols are found by name.
enum Table {
	Gnu(usize),
	SystemV(usize),
}

/// Links of a hash table followed at most: a table that is none may have no end.
const LINKS: usize = 1 << 16;
const ENTRIES: usize = 1 << 10;

/// Bytes read at once: part of a page, so that all of them can be read or none. What is asked for are a few bytes here
/// and there, and a call costs more than the bytes.
const WINDOW: usize = 512;

/// Reads what may lie anywhere, and knows whether all of it could be read. A file mapped for execution need not be
/// whole, nor an object, nor loaded as one.
pub struct Reader {
	failed: Cell<bool>,
	/// What was read last, by address.
	windows: RefCell<[(usize, [u8; WINDOW]); WINDOWS]>,
}

/// Windows that are kept: headers, symbols, names and the parts of the hash table lie apart.
const WINDOWS: usize = 8;

impl Default for Reader {
	fn default() -> Reader {
		// An address that is not a window's.
		Reader { failed: Cell::new(false), windows: RefCell::new([(1, [0; WINDOW]); WINDOWS]) }
	}
}

impl Reader {
	/// Whether something could not be read: what wasn't found may be there.
	pub fn failed(&self) -> bool {
		self.failed.get()
	}

	/// Fills `bytes`. `None`: they can't be read.
	fn fill(&self, at: usize, bytes: &mut [u8]) -> Option<()> {
		self.read(at, bytes).inspect_err(|_| self.failed.set(true)).ok()
	}

	fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
		let (start, offset) = (at & !(WINDOW - 1), at % WINDOW);
		let Some(within) = offset.checked_add(bytes.len()).filter(|end| *end <= WINDOW) else {
			return sys::read_own(at, bytes);
		};
		let (address, window) = &mut self.windows.borrow_mut()[start / WINDOW % WINDOWS];
		if *address != start {
			*address = 1;
			sys::read_own(start, window)?;
			*address = start;
		}
		bytes.copy_from_slice(&window[offset..within]);
		Ok(())
	}

	fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
		let mut bytes = [0; N];
		self.fill(at, &mut bytes)?;
		Some(bytes)
	}

	fn half(&self, at: usize) -> Option<u16> {
		self.bytes(at).map(u16::from_ne_bytes)
	}

	fn word(&self, at: usize) -> Option<u32> {
		self.bytes(at).map(u32::from_ne_bytes)
	}

	fn long(&self, at: usize) -> Option<usize> {
		self.bytes(at).map(usize::from_ne_bytes)
	}
}

fn nth(array: usize, size: usize, i: u32) -> usize {
	array.wrapping_add(size.wrapping_mul(i as usize))
}

impl<'a> Object<'a> {
	/// The object mapped from its file's start at `base`. `None`: it is none, or has no dynamic symbols, or isn't
	/// mapped as the loader would map it.
	pub fn at(reader: &'a Reader, base: usize) -> Option<Object<'a>> {
		if reader.bytes(base)? != MAGIC {
			return None;
		}
		let headers = base.wrapping_add(reader.long(base + 32)?);
		let header_count = u32::from(reader.half(base + 56)?);
		let segment = |kind| (0..header_count).map(|i| nth(headers, 56, i)).find(|s| reader.word(*s) == Some(kind));
		// The first segment begins with the file.
		let bias = base.wrapping_sub(reader.long(segment(PT_LOAD)?.wrapping_add(16))? & !4095);
		let dynamic = bias.wrapping_add(reader.long(segment(PT_DYNAMIC)?.wrapping_add(16))?);
		let (mut symbols, mut strings, mut gnu, mut system_v) = (0, 0, 0, 0);
		for i in 0..ENTRIES {
			let entry = dynamic.wrapping_add(16 * i);
			let (tag, value) = (reader.long(entry)? as u64, reader.long(entry.wrapping_add(8))?);
			// glibc's loader has made addresses of them, others leave them as they are in the file.
			let address = if value < base { bias.wrapping_add(value) } else { value };
			match tag {
				0 => break,
				DT_SYMTAB => symbols = address,
				DT_STRTAB => strings = address,
				DT_GNU_HASH => gnu = address,
				DT_HASH => system_v = address,
				_ => {}
			}
		}
		let table = match (gnu, system_v) {
			(0, 0) => return None,
			(0, at) => Table::SystemV(at),
			(at, _) => Table::Gnu(at),
		};
		let found = Object { reader, bias, headers, header_count, symbols, strings, table };
		(symbols != 0 && strings != 0).then_some(found)
	}

	/// Whether it is a program, and no library: it names a loader, as the C library does and the loader.
	pub fn is_program(&self) -> bool {
		self.segments().any(|s| self.reader.word(s) == Some(PT_INTERP))
	}

	/// Whether the loader has mapped `range`, from this offset in the file on, to be written.
	pub fn loads_to_write(&self, range: Range, offset: u64) -> bool {
		self.segments().any(|s| {
			self.segment_to_write(s).is_some_and(|(start, end, from)| {
				start <= range.start && range.end <= end && offset == from + (range.start - start) as u64
			})
		})
	}

	/// Where a segment that may be written begins and ends as far as it has a file, and where it begins there.
	fn segment_to_write(&self, segment: usize) -> Option<(usize, usize, u64)> {
		let [offset, address, .., size] = [8, 16, 24, 32].map(|at| self.reader.long(segment.wrapping_add(at)));
		let writable = self.reader.word(segment.wrapping_add(4))? & PF_W != 0;
		if self.reader.word(segment)? != PT_LOAD || !writable {
			return None;
		}
		let address = self.bias.wrapping_add(address?);
		let end = address.checked_add(size?)?.checked_next_multiple_of(PAGE)?;
		Some((address & !(PAGE - 1), end, (offset? & !(PAGE - 1)) as u64))
	}

	fn segments(&self) -> impl Iterator<Item = usize> + use<> {
		let headers = self.headers;
		(0..self.header_count).map(move |i| nth(headers, 56, i))
	}

	/// The address of a function that the object defines.
	pub fn function(&self, name: &CStr) -> Option<usize> {
		match self.table {
			Table::Gnu(table) => self.by_gnu_hash(table, name),
			Table::SystemV(table) => self.by_system_v_hash(table, name),
		}
	}

	/// Header of four words, the filter's words of eight bytes, the buckets, the chains.
	fn by_gnu_hash(&self, table: usize, name: &CStr) -> Option<usize> {
		let hash = name.to_bytes().iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)));
		let [buckets, first, words, shift] = [0, 1, 2, 3].map(|i| self.reader.word(nth(table, 4, i)));
		let (buckets, first, words, shift) = (buckets?, first?, words?, shift?);
		if buckets == 0 || words == 0 {
			return None;
		}
		let filter = table.wrapping_add(16);
		let bits = self.reader.long(nth(filter, 8, hash / 64 % words))? as u64;
		if bits >> (hash % 64) & bits >> (hash.checked_shr(shift)? % 64) & 1 == 0 {
			return None;
		}
		let heads = nth(filter, 8, words);
		let chains = nth(heads, 4, buckets);
		let mut i = self.reader.word(nth(heads, 4, hash % buckets))?;
		for _ in 0..LINKS {
			let link = self.reader.word(nth(chains, 4, i.checked_sub(first)?))?;
			if link | 1 == hash | 1
				&& let Some(found) = self.function_at(i, name)
			{
				return Some(found);
			}
			if link & 1 != 0 {
				return None;
			}
			i = i.checked_add(1)?;
		}
		None
	}

	/// Two counts, the buckets, the chains.
	fn by_system_v_hash(&self, table: usize, name: &CStr) -> Option<usize> {
		let hash = name.to_bytes().iter().fold(0u32, |h, b| {
			let h = (h << 4).wrapping_add(u32::from(*b));
			(h ^ (h & 0xf000_0000) >> 24) & 0x0fff_ffff
		});
		let buckets = self.reader.word(table).filter(|n| *n != 0)?;
		let heads = table.wrapping_add(8);
		let chains = nth(heads, 4, buckets);
		let mut i = self.reader.word(nth(heads, 4, hash % buckets))?;
		for _ in 0..LINKS {
			if i == 0 {
				break;
			}
			if let Some(found) = self.function_at(i, name) {
				return Some(found);
			}
			i = self.reader.word(nth(chains, 4, i))?;
		}
		None
	}

	fn function_at(&self, i: u32, name: &CStr) -> Option<usize> {
		// struct Elf64_Sym: name 4 bytes, type and binding 1, visibility 1, section 2, value 8, size 8. Names end with
		// a NUL.
		let symbol = nth(self.symbols, 24, i);
		let defined = self.reader.half(symbol.wrapping_add(6))? != 0
			&& self.reader.bytes::<1>(symbol.wrapping_add(4))?[0] & 15 == STT_FUNC;
		let own = self.strings.wrapping_add(self.reader.word(symbol)? as usize);
		let mut held = [0; 64];
		let held = held.get_mut(..name.to_bytes_with_nul().len())?;
		self.reader.fill(own, held)?;
		if !defined || held != name.to_bytes_with_nul() {
			return None;
		}
		Some(self.bias.wrapping_add(self.reader.long(symbol.wrapping_add(8))?))
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn object_of(reader: &Reader, address: usize) -> Object<'_> {
		// SAFETY: the loader fills the struct, which may be zeros.
		let base = unsafe {
			let mut info: libc::Dl_info = core::mem::zeroed();
			assert_ne!(libc::dladdr(address as *const _, &raw mut info), 0);
			info.dli_fbase as usize
		};
		Object::at(reader, base).expect("an object with symbols")
	}

	#[test]
	fn finds_functions_of_libc_and_no_others() {
		let reader = Reader::default();
		let libc = object_of(&reader, libc::getpid as *const () as usize);
		for (name, address) in [
			(c"madvise", libc::madvise as *const () as usize),
			(c"mremap", libc::mremap as *const () as usize),
			(c"syscall", libc::syscall as *const () as usize),
		] {
			assert_eq!(libc.function(name), Some(address), "{name:?}");
		}
		assert!(libc.function(c"__libc_start_main").is_some());
		assert_eq!(libc.function(c"flashfork_is_not_there"), None);
		// Data, and undefined here.
		assert_eq!(libc.function(c"environ"), None);
		assert_eq!(libc.function(c"__tls_get_addr"), None);
	}
}
