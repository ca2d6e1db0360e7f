//! Where a C library makes a system call, as its machine code shows it.
//!
//! A site is an instruction of at least five bytes, most often `mov $number,%eax`, from which a straight line of
//! instructions leads to `syscall`. The five bytes are room for a jump: whoever is about to execute the instruction
//! finds it whole or the jump, and whoever is past it goes on in bytes that stay as they are. The instructions of the
//! line are executed elsewhere, so only those count that mean the same at any address.

/// Bytes of a jump, and least length of the instruction that it replaces.
pub const JUMP: usize = 5;
/// Most bytes from the first instruction to `syscall`.
pub const LINE: usize = 64;

pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Most bytes from the beginning of the function `syscall` to the instruction.
const BY_NUMBER: usize = 256;
/// Marks where a function may be called from elsewhere (`endbr64`).
const CALLED_FROM_ELSEWHERE: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// One system call in a piece of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Where its first instruction begins.
    pub at: usize,
    /// Bytes from there to `syscall`.
    pub line: usize,
}

/// A call that can't be told from others, at this place: whoever rewrites the rest would miss it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unclear(pub usize);

/// The number of the call to which a site's instructions lead. `None`: it takes any.
pub fn number(line: &[u8]) -> Option<u32> {
    let number = line.get(1..JUMP).filter(|_| line[0] == 0xb8)?.try_into().ok()?;
    Some(u32::from_le_bytes(number))
}

/// Whether the sites of a number are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    No,
    /// Those that are understood.
    WhereClear,
    /// All.
    Must,
}

/// Calls `each` with every site of a number that is `wanted`, and with the one in the function `syscall`, when that
/// begins at `by_number` and is understood.
pub fn for_each(
    code: &[u8],
    by_number: Option<usize>,
    wanted: impl Fn(u32) -> Want,
    mut each: impl FnMut(Site) -> Result<(), Unclear>,
) -> Result<(), Unclear> {
    for at in places_of(0xb8, code) {
        let Some(number) = number(&code[at..]) else { break };
        let want = wanted(number);
        if want == Want::No {
            continue;
        }
        match follow(code, at + JUMP) {
            Line::Straight(end) if !is_prefix(code, at) => each(Site { at, line: end - at })?,
            // `mov $number,%r8d`, or an instruction that happens to end so.
            Line::Straight(end) | Line::Bent(end) if want == Want::Must => return Err(Unclear(end)),
            Line::Straight(_) | Line::Bent(_) | Line::Elsewhere => {}
        }
    }
    match by_number.and_then(|function| site_by_number(code, function)) {
        Some(site) => each(site),
        None => Ok(()),
    }
}

/// The site in the function `syscall`, which goes straight to the instruction: from the last one that a jump fits in.
/// Each build has these in another order.
fn site_by_number(code: &[u8], function: usize) -> Option<Site> {
    let mut at = function;
    if code.get(at..)?.starts_with(&CALLED_FROM_ELSEWHERE) {
        at += CALLED_FROM_ELSEWHERE.len();
    }
    let end = code.len().min(function + BY_NUMBER);
    let mut first = None;
    while at < end {
        match instruction(&code[at..]) {
            Step::Syscall => return first.map(|first| Site { at: first, line: at - first }),
            Step::Next(len) => {
                if len >= JUMP {
                    first = Some(at);
                }
                at += len;
            }
            // The number comes into eax. What is before it stays where it is.
            Step::Number(len) => (at, first) = (at + len, None),
            _ => return None,
        }
    }
    None
}

/// Where a byte stands.
pub fn places_of(byte: u8, code: &[u8]) -> impl Iterator<Item = usize> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let at = from + find(byte, code.get(from..)?)?;
        from = at + 1;
        Some(at)
    })
}

/// The first place of a byte. By the processor's own search: megabytes are looked through in a program's first seal,
/// however this was compiled.
fn find(byte: u8, code: &[u8]) -> Option<usize> {
    let left: usize;
    let found: u8;
    // SAFETY: reads the slice alone; the direction flag is clear under the System V ABI. In an empty slice
    // nothing is found.
    unsafe {
        core::arch::asm!(
            "test rcx, rcx",
            "mov {found}, 0",
            "jz 2f",
            "repne scasb",
            "sete {found}",
            "2:",
            found = out(reg_byte) found,
            inout("rcx") code.len() => left,
            inout("rdi") code.as_ptr() => _,
            in("al") byte,
            options(nostack, readonly),
        );
    }
    (found == 1).then(|| code.len() - left - 1)
}

/// Whether the byte before an instruction may be its prefix, which would give it another meaning.
fn is_prefix(code: &[u8], at: usize) -> bool {
    at > 0 && matches!(code[at - 1], 0x40..=0x4f)
}

/// Where the instructions after a `mov $number,%eax` lead.
enum Line {
    /// Straight to the `syscall` at this place.
    Straight(usize),
    /// To that one, but not only, or not by instructions that can be executed elsewhere.
    Bent(usize),
    /// To none, or the number is another one by then.
    Elsewhere,
}

fn follow(code: &[u8], from: usize) -> Line {
    let (mut at, mut bent) = (from, false);
    let end = code.len().min(from - JUMP + LINE);
    while at < end {
        match instruction(&code[at..]) {
            Step::Syscall if bent => return Line::Bent(at),
            Step::Syscall => return Line::Straight(at),
            Step::Next(len) => at += len,
            Step::Fixed(len) => (at, bent) = (at + len, true),
            Step::Jump(offset) => {
                // Somebody else's `syscall`, with our number.
                let to = at.wrapping_add_signed(offset);
                return if code.get(to..).is_some_and(|there| there.starts_with(&SYSCALL)) {
                    Line::Bent(to)
                } else {
                    Line::Elsewhere
                };
            }
            Step::End | Step::Number(_) => return Line::Elsewhere,
            Step::Unknown => {
                // What follows can't be read any more. Is there a `syscall` at all?
                let near = code[at..end].windows(SYSCALL.len()).position(|two| two == SYSCALL);
                return near.map_or(Line::Elsewhere, |n| Line::Bent(at + n));
            }
        }
    }
    Line::Elsewhere
}

/// What an instruction means to somebody who follows a number in eax.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Syscall,
    /// Of this length, with the same effect at any address.
    Next(usize),
    /// Of this length; it must stay where it is, or does not always go on.
    Fixed(usize),
    /// Goes on so far away.
    Jump(isize),
    /// Of this length; another number is in eax behind it.
    Number(usize),
    /// Nothing goes on behind it, or not with the number.
    End,
    Unknown,
}

/// Reads one instruction, of those that compilers put before a system call.
fn instruction(code: &[u8]) -> Step {
    let mut at = 0;
    let byte = |at: usize| code.get(at).copied().unwrap_or(0xf4);
    while matches!(byte(at), 0x64 | 0x66 | 0x2e) {
        at += 1;
    }
    let rex = if matches!(byte(at), 0x40..=0x4f) { byte(at) } else { 0 };
    at += usize::from(rex != 0);
    let opcode = byte(at);
    at += 1;
    // Whether the register in the low three bits of an opcode or a ModRM byte is eax; and the one in the middle three.
    let low_is_eax = |bits: u8| bits & 7 == 0 && rex & 1 == 0;
    let middle_is_eax = |bits: u8| bits >> 3 & 7 == 0 && rex & 4 == 0;
    let modrm = byte(at);
    let in_register = modrm >> 6 == 3;
    let operand = |immediate: usize, changes_eax: bool| match operand_len(&code[at.min(code.len())..]) {
        Some((len, _)) if changes_eax => Step::Number(at + len + immediate),
        Some((len, true)) => Step::Next(at + len + immediate),
        Some((len, false)) => Step::Fixed(at + len + immediate),
        None if changes_eax => Step::End,
        None => Step::Unknown,
    };
    match opcode {
        0x50..=0x57 => Step::Next(at),
        0x90 => Step::Next(at),
        0xb8..=0xbf if low_is_eax(opcode) => Step::End,
        0xb8..=0xbf => Step::Next(at + if rex & 8 != 0 { 8 } else { 4 }),
        // To a register or memory from a register.
        0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x89 => operand(0, in_register && low_is_eax(modrm)),
        0x39 | 0x85 => operand(0, false),
        // To a register.
        0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x63 | 0x8b | 0x8d => operand(0, middle_is_eax(modrm)),
        0x3b => operand(0, false),
        // With a constant; 7 in the middle is a comparison.
        0x83 => operand(1, in_register && low_is_eax(modrm) && modrm >> 3 & 7 != 7),
        0x81 => operand(4, in_register && low_is_eax(modrm) && modrm >> 3 & 7 != 7),
        0xc7 => operand(4, in_register && low_is_eax(modrm)),
        0xeb => Step::Jump(at as isize + 1 + modrm.cast_signed() as isize),
        0xe9 => match code.get(at..at + 4).and_then(|n| n.try_into().ok()).map(i32::from_le_bytes) {
            Some(offset) => Step::Jump(at as isize + 4 + offset as isize),
            None => Step::Unknown,
        },
        0x70..=0x7f => Step::Fixed(at + 1),
        0xc2 | 0xc3 | 0xcc | 0xe8 | 0xf4 => Step::End,
        0x0f => {
            at += 1;
            match modrm {
                0x05 => Step::Syscall,
                0x0b => Step::End,
                0x80..=0x8f => Step::Fixed(at + 4),
                // Loads and stores of SSE, and no operation: the ModRM byte is the next.
                0x10 | 0x11 | 0x16 | 0x17 | 0x1e | 0x1f | 0x28 | 0x29 | 0x6f | 0x7f | 0xd6 => {
                    match operand_len(&code[at.min(code.len())..]) {
                        Some((len, true)) => Step::Next(at + len),
                        Some((len, false)) => Step::Fixed(at + len),
                        None => Step::Unknown,
                    }
                }
                _ => Step::Unknown,
            }
        }
        _ => Step::Unknown,
    }
}

/// Length of a ModRM byte with what belongs to it, and whether it means the same at any address.
fn operand_len(code: &[u8]) -> Option<(usize, bool)> {
    let modrm = *code.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut len = 1;
    if mode == 3 {
        return Some((len, true));
    }
    if rm == 4 {
        let base = code.get(1)? & 7;
        len += 1;
        if mode == 0 && base == 5 {
            len += 4;
        }
    }
    match mode {
        // Relative to the instruction's own address.
        0 if rm == 5 => Some((len + 4, false)),
        0 => Some((len, true)),
        1 => Some((len + 1, true)),
        _ => Some((len + 4, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    const WANTED: [u32; 7] = [9, 25, 28, 157, 289, 325, 440];

    /// Where sites begin and how long their lines are.
    fn sites(code: &[u8]) -> Result<Vec<(usize, usize)>, Unclear> {
        let mut found = Vec::new();
        for_each(
            code,
            None,
            |n| if WANTED.contains(&n) { Want::Must } else { Want::No },
            |s| {
                found.push((s.at, s.line));
                Ok(())
            },
        )?;
        Ok(found)
    }

    #[test]
    fn every_place_of_a_byte_is_found() {
        let places = |code: &[u8]| places_of(7, code).collect::<Vec<_>>();
        assert_eq!(places(&[]), []);
        assert_eq!(places(&[1]), []);
        assert_eq!(places(&[7, 1, 7, 7]), [0, 2, 3]);
        assert_eq!(places(&[1, 2, 7]), [2]);
    }

    /// Beginnings of functions, from the packages of Debian 11, 12 and 13.
    #[test]
    fn functions_of_glibc_2_31_to_2_41_are_recognised() {
        for (what, code, at) in [
            ("madvise, all of them", "b81c0000000f05483d01f0ffff", 0),
            ("posix_madvise, all of them", "31c083fa047409b81c0000000f05f7d8c3662e0f", 7),
            ("process_madvise 2.36", "4989cab8b80100000f05483d01f0ffff", 3),
            ("mremap 2.31", "4989cab8190000000f05483d01f0ffff", 3),
            (
                "mremap 2.36 and 2.41",
                "4883ec584c8944244064488b042528000000488944241831c083f907775a4189ca4531c0f6c1067527b8190000000f05483d00f0ffff",
                41,
            ),
            ("mlock2, all of them", "85d2742cb8450100000f05483d00f0ffff", 4),
            (
                "prctl 2.36",
                "4883ec584989ca4889742428488954243048894c24384c8944244064488b042528000000488944241831c0488d442460c70424180000004889442408488d4424204889442410b89d0000000f05483d00f0ffff",
                70,
            ),
            ("the same where calls are tracked (endbr64)", "f30f1efab81c0000000f05483d01f0ffff", 4),
        ] {
            assert_eq!(sites(&bytes(code)), Ok(vec![(at, 5)]), "{what}");
        }
        // mmap of 2.41, which ors a flag in between; signalfd, which loads another register.
        assert_eq!(sites(&bytes("31ffb8090000004183ca400f054889c7")), Ok(vec![(2, 9)]));
        assert_eq!(sites(&bytes("4189d2b821010000ba080000000f05483d")), Ok(vec![(3, 10)]));
    }

    #[test]
    fn functions_of_musl_are_recognised() {
        for (what, code, at, line) in [
            ("madvise", "4883ec084863d2b81c0000000f054889c7e8caee", 7, 5),
            ("mmap", "4d63c0b8090000004c89e70f054889c7", 3, 8),
            ("mremap", "4c63d5b8190000000f054889c7e8f9ec", 3, 5),
        ] {
            assert_eq!(sites(&bytes(code)), Ok(vec![(at, line)]), "{what}");
        }
    }

    /// Whole, from the packages of Debian 11, 12 and 13.
    #[test]
    fn the_function_that_takes_any_number_is_recognised() {
        for (what, code, at, line) in [
            ("glibc, all of them", "4889f84889f74889d64889ca4d89c24d89c84c8b4c24080f05483d01f0ffff", 18, 5),
            (
                "musl 1.2.2",
                "4883ec58 4889f8 4d89c2 4889742428 488d742420 48894c2438 4889f1 4c89442440 4d89c8 4c894c2448 4c8b4c2460 \
                 4889542430 488b7e08 64488b142528000000 4889542418 31d2 488d542460 4889742410 488b7610 4889542408 488b5118 \
                 c7042408000000 0f05 4889c7",
                94,
                7,
            ),
            (
                "musl 1.2.5",
                "f30f1efa 4883ec58 4889f8 4d89c2 4889542430 488d542420 4c89442440 4d89c8 4c894c2448 4c8b4c2460 4889742428 \
                 48894c2438 488b7a08 64488b342528000000 4889742418 488d742460 4889542410 c7042428000000 4889742408 488b7210 \
                 488b5218 0f05 4889c7",
                87,
                13,
            ),
        ] {
            let code = bytes(&code.replace(' ', ""));
            assert_eq!(site_by_number(&code, 0), Some(Site { at, line }), "{what}");
        }
        for (what, code) in [
            ("a branch in between", "4889f84c8b4c240874000f05"),
            ("another function first", "4889f84c8b4c2408e8000000000f05"),
            ("no room for a jump", "4889f84889f70f05"),
            ("no room behind the number", "4c8b4c24084889f80f05"),
            ("a breakpoint", "cc4889f84c8b4c24080f05"),
            ("cut off", "4889f84c8b4c2408"),
        ] {
            assert_eq!(site_by_number(&bytes(code), 0), None, "{what}");
        }
    }

    #[test]
    fn numbers_that_lead_to_no_call_are_left_alone() {
        for code in [
            "b81c000000c30f05",         // returned
            "b819000000e8000000000f05", // given to a function, which changes eax
            "b81900000089c631c00f05",   // moved, and another number taken
            "b819000000b8270000000f05", // the same
            "b80900000048c7c0270000000f05",
        ] {
            assert_eq!(sites(&bytes(code)), Ok(vec![]), "{code}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (what, code) in [
            ("a branch in between", "b81c00000074020f05"),
            ("a jump to a call", "b81c000000eb010f0f05"),
            ("another register, or the end of the instruction before", "41b81c0000000f05"),
            ("relative to its own address", "b81c000000488b3d000000000f05"),
            ("unknown, with a call behind", "b81c000000c5f877900f05"),
        ] {
            assert!(sites(&bytes(code)).is_err(), "{what}");
        }
        // A breakpoint hides the number.
        assert_eq!(sites(&bytes("cc1c0000000f05483d01f0ffff")), Ok(vec![]));
    }

    #[test]
    fn bytes_at_random_do_no_harm() {
        let mut state = 1u64;
        let mut code = vec![0; 1 << 16];
        for byte in &mut code {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = match state >> 60 {
                0..4 => 0xb8,
                4 => 0x0f,
                5 => 0x05,
                6..9 => 0,
                _ => (state >> 33) as u8,
            };
        }
        for start in 0..512 {
            let _ = for_each(
                &code[start..],
                Some(0),
                |_| Want::Must,
                |s| {
                    assert!(code[start + s.at + s.line..].starts_with(&SYSCALL));
                    Ok(())
                },
            );
        }
    }
}
