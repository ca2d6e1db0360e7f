//! A loaded ELF object, as far as its functions' addresses are asked for (`elf(5)`).

use core::ffi::CStr;

const MAGIC: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

/// See the module.
pub struct Object {
    /// What is added to the addresses in the file.
    bias: usize,
    symbols: usize,
    strings: usize,
    table: Table,
}

/// How symbols are found by name.
enum Table {
    Gnu(usize),
    SystemV(usize),
}

/// Reads a value that may lie anywhere.
///
/// # Safety
/// The address is readable.
unsafe fn read<T: Copy>(at: usize) -> T {
    // SAFETY: as the caller says; integers may have any bytes.
    unsafe { (at as *const T).read_unaligned() }
}

impl Object {
    /// The object that is mapped from its file's start at `base`. `None`: it is none, or has no dynamic symbols.
    ///
    /// # Safety
    /// A page at `base` is readable, and if an ELF object begins there the loader has mapped it whole.
    pub unsafe fn at(base: usize) -> Option<Object> {
        // SAFETY: the header lies in the first page; it tells where the rest is, which is mapped too.
        unsafe {
            if read::<[u8; 7]>(base) != MAGIC {
                return None;
            }
            let headers = base + read::<u64>(base + 32) as usize;
            let count = usize::from(read::<u16>(base + 56));
            let segments = || (0..count).map(|i| headers + i * 56);
            let first = segments().find(|s| read::<u32>(*s) == PT_LOAD)?;
            // The first segment begins with the file.
            let bias = base.wrapping_sub(read::<u64>(first + 16) as usize & !4095);
            let dynamic = segments().find(|s| read::<u32>(*s) == PT_DYNAMIC)?;
            let mut at = bias.wrapping_add(read::<u64>(dynamic + 16) as usize);
            let (mut symbols, mut strings, mut gnu, mut system_v) = (0, 0, 0, 0);
            loop {
                let (tag, value) = (read::<u64>(at), read::<u64>(at + 8) as usize);
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
                at += 16;
            }
            let table = match (gnu, system_v) {
                (0, 0) => return None,
                (0, at) => Table::SystemV(at),
                (at, _) => Table::Gnu(at),
            };
            (symbols != 0 && strings != 0).then_some(Object { bias, symbols, strings, table })
        }
    }

    /// The address of a function that the object defines.
    pub fn function(&self, name: &CStr) -> Option<usize> {
        // SAFETY: the tables were found in a loaded object and are as the format says.
        unsafe {
            match self.table {
                Table::Gnu(table) => self.by_gnu_hash(table, name),
                Table::SystemV(table) => self.by_system_v_hash(table, name),
            }
        }
    }

    unsafe fn by_gnu_hash(&self, table: usize, name: &CStr) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)));
        // SAFETY: header of four words, the filter's words of eight bytes, the buckets, the chains.
        unsafe {
            let [buckets, first, words, shift] = read::<[u32; 4]>(table);
            if buckets == 0 || words == 0 {
                return None;
            }
            let filter = table + 16;
            let word = read::<u64>(filter + 8 * (hash / 64 % words) as usize);
            if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 {
                return None;
            }
            let bucket = filter + 8 * words as usize + 4 * (hash % buckets) as usize;
            let chains = filter + 8 * words as usize + 4 * buckets as usize;
            let mut i = read::<u32>(bucket);
            if i < first {
                return None;
            }
            loop {
                let link = read::<u32>(chains + 4 * (i - first) as usize);
                if link | 1 == hash | 1
                    && let Some(found) = self.function_at(i, name)
                {
                    return Some(found);
                }
                if link & 1 != 0 {
                    return None;
                }
                i += 1;
            }
        }
    }

    unsafe fn by_system_v_hash(&self, table: usize, name: &CStr) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(0u32, |h, b| {
            let h = (h << 4).wrapping_add(u32::from(*b));
            (h ^ (h & 0xf000_0000) >> 24) & 0x0fff_ffff
        });
        // SAFETY: two counts, the buckets, the chains.
        unsafe {
            let [buckets, _] = read::<[u32; 2]>(table);
            if buckets == 0 {
                return None;
            }
            let mut i = read::<u32>(table + 8 + 4 * (hash % buckets) as usize);
            while i != 0 {
                if let Some(found) = self.function_at(i, name) {
                    return Some(found);
                }
                i = read::<u32>(table + 8 + 4 * (buckets + i) as usize);
            }
        }
        None
    }

    /// The address of symbol `i`, if it is a function that is defined here and has this name.
    unsafe fn function_at(&self, i: u32, name: &CStr) -> Option<usize> {
        let symbol = self.symbols + 24 * i as usize;
        // SAFETY: struct Elf64_Sym: name 4 bytes, type and binding 1, visibility 1, section 2, value 8, size 8. Names end with a NUL.
        unsafe {
            let defined = read::<u16>(symbol + 6) != 0 && read::<u8>(symbol + 4) & 15 == STT_FUNC;
            let own = CStr::from_ptr((self.strings + read::<u32>(symbol) as usize) as *const _);
            (defined && own == name).then(|| self.bias.wrapping_add(read::<u64>(symbol + 8) as usize))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The object that holds an address.
    fn object_of(address: usize) -> Object {
        // SAFETY: the loader fills the struct, which may be zeros, and the object is loaded.
        unsafe {
            let mut info: libc::Dl_info = core::mem::zeroed();
            assert_ne!(libc::dladdr(address as *const _, &raw mut info), 0);
            Object::at(info.dli_fbase as usize).expect("an object with symbols")
        }
    }

    #[test]
    fn finds_functions_of_libc_and_no_others() {
        let libc = object_of(libc::getpid as *const () as usize);
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
