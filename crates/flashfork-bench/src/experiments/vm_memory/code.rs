//! The guest: 32-bit code without paging, so that it reaches all of its memory.

use flashfork_vmm::boot::TINY_ADDRESS as ADDRESS;

/// The first byte that is touched.
pub(super) const FIRST: u32 = 2 << 20;
/// From one access to the next.
pub(super) const PAGE: u32 = 4096;

const FORK: u8 = 0x10;
const DONE: u8 = 0x20;
const RESET: u8 = 0x30;

/// What is done to each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Write,
    Read,
}

impl Access {
    pub(super) const ALL: [Self; 2] = [Self::Write, Self::Read];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// Goes over memory up to `end` twice, forks, and over it twice more. A reset signal before and after every pass tells
/// its time.
pub(super) fn passes(access: Access, end: u32) -> Vec<u8> {
    let mut code = protected_mode();
    for pass in 0..4 {
        // The first of them, and the first of the clone's, only starts the timer.
        if pass % 2 == 0 {
            signal(&mut code, RESET);
        }
        go_over(&mut code, access, end);
        signal(&mut code, RESET);
        if pass == 1 {
            signal(&mut code, FORK);
        }
    }
    // xor eax, eax; mov dx, 0x123c; out dx, eax: status 0.
    code.extend([0x31, 0xc0, 0x66, 0xba, 0x3c, 0x12, 0xef]);
    signal(&mut code, DONE);
    code.push(0xf4); // hlt
    code
}

/// From real mode to flat 32-bit segments.
fn protected_mode() -> Vec<u8> {
    // cli; lgdt [table]; mov eax, cr0; or al, 1; mov cr0, eax; jmp 8:after
    const LEAD: usize = 1 + 5 + 3 + 2 + 3 + 8;
    const TABLE: usize = 3 * 8;
    let table = ADDRESS as u16 + LEAD as u16;
    // The table's own place comes after it.
    let pointer = table + TABLE as u16;
    let after = u32::from(pointer) + 6;
    let mut code = vec![0xfa, 0x0f, 0x01, 0x16];
    code.extend(pointer.to_le_bytes());
    code.extend([0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0, 0x66, 0xea]);
    code.extend(after.to_le_bytes());
    code.extend([0x08, 0x00]);
    code.extend([0u64, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff].iter().flat_map(|entry| entry.to_le_bytes()));
    code.extend((TABLE as u16 - 1).to_le_bytes());
    code.extend(u32::from(table).to_le_bytes());
    // mov ax, 0x10; mov ds, ax; mov es, ax
    code.extend([0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd8, 0x8e, 0xc0]);
    code
}

/// One word of every page.
fn go_over(code: &mut Vec<u8>, access: Access, end: u32) {
    code.push(0xbf); // mov edi, FIRST
    code.extend(FIRST.to_le_bytes());
    // mov [edi], edi, or mov eax, [edi]
    code.extend(match access {
        Access::Write => [0x89, 0x3f],
        Access::Read => [0x8b, 0x07],
    });
    code.extend([0x81, 0xc7]); // add edi, PAGE
    code.extend(PAGE.to_le_bytes());
    code.extend([0x81, 0xff]); // cmp edi, end
    code.extend(end.to_le_bytes());
    code.extend([0x72, 0xf0]); // jb to the access
}

/// mov dx, 0x1234; mov al, number; out dx, al
fn signal(code: &mut Vec<u8>, number: u8) {
    code.extend([0x66, 0xba, 0x34, 0x12, 0xb0, number, 0xee]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_its_page_and_its_jumps_fit_the_code() {
        for access in Access::ALL {
            let code = passes(access, 256 << 20);
            assert!(code.len() < 4096, "{}", code.len());
        }
        let mut pass = Vec::new();
        go_over(&mut pass, Access::Write, 4 << 20);
        // The jump's distance counts from its end to the access behind the first instruction.
        let distance = i8::from_le_bytes([*pass.last().unwrap()]);
        assert_eq!(pass.len() as i64 + i64::from(distance), 5);
        let lead = protected_mode();
        let pointer = u16::from_le_bytes([lead[4], lead[5]]) as usize - ADDRESS as usize;
        let table = u32::from_le_bytes(lead[pointer + 2..pointer + 6].try_into().unwrap()) as usize - ADDRESS as usize;
        assert_eq!((lead[table..table + 8].to_vec(), pointer - table), (vec![0; 8], 24));
        let entry = u32::from_le_bytes(lead[16..20].try_into().unwrap()) as usize - ADDRESS as usize;
        assert_eq!(&lead[entry..entry + 2], &[0x66, 0xb8]);
    }
}
