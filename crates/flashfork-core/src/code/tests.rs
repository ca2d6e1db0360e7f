//! Hand-made machine code.

use super::*;

/// Code at an address, and nothing else.
struct Code<'a>(usize, &'a [u8]);

impl Memory for Code<'_> {
    fn bytes(&mut self, at: usize, len: usize) -> Option<&[u8]> {
        let start = at.checked_sub(self.0)?;
        self.1.get(start..start.checked_add(len)?)
    }
}

const START: usize = 0x40_0000;

/// What is found in code without a table of functions, with bytes around it that decode to anything.
fn unlisted(code: &[u8]) -> Vec<(usize, Call)> {
    found(code, Kind::Unlisted)
}

fn found(code: &[u8], kind: Kind) -> Vec<(usize, Call)> {
    let mut padded = vec![0x90; 80];
    padded.extend(code);
    padded.extend([0x90; 80]);
    let mut all = Vec::new();
    let range = Range::new(START, START + padded.len());
    assert!(sites(&mut Code(START, &padded), range, kind, &mut |site| {
        all.push((site.at - START - 80, site.call));
        true
    }));
    all
}

/// What a function with these bytes calls, at the first `syscall` in it.
fn function(code: &[u8]) -> Option<Call> {
    let at = code.windows(2).position(|two| two == [0x0f, 0x05]).unwrap();
    decode::in_function(code, at).unwrap()
}

const MADVISE: Call = Call::Number(28);
const MREMAP: Call = Call::Number(25);

#[test]
fn a_number_before_the_instruction_is_found_however_it_gets_into_the_accumulator() {
    // mov $28,%eax; syscall; ret
    assert_eq!(unlisted(b"\xb8\x1c\0\0\0\x0f\x05\xc3"), [(5, MADVISE)]);
    // mov $25,%rax with others between; syscall
    assert_eq!(unlisted(b"\x48\xc7\xc0\x19\0\0\0\x48\x89\xf7\x49\x89\xca\x0f\x05\xc3"), [(13, MREMAP)]);
    // push $28; pop %rax; syscall
    assert_eq!(unlisted(b"\x6a\x1c\x58\x0f\x05\xc3"), [(3, MADVISE)]);
    // mov $28,%r12d; mov %r12,%rax; syscall
    assert_eq!(unlisted(b"\x41\xbc\x1c\0\0\0\x4c\x89\xe0\x0f\x05\xc3"), [(9, MADVISE)]);
    // mov $440,%eax; int $0x80, and mov $219,%eax; int $0x80: madvise there
    assert_eq!(unlisted(b"\xb8\xb8\x01\0\0\xcd\x80\xc3"), [(5, Call::Number(440))]);
    assert_eq!(unlisted(b"\xb8\xdb\0\0\0\xcd\x80\xc3"), [(5, MADVISE)]);
}

#[test]
fn other_calls_are_nobodys_business() {
    for number in [0u8, 1, 9, 10, 11, 12, 27, 202] {
        assert_eq!(unlisted(&[0xb8, number, 0, 0, 0, 0x0f, 0x05, 0xc3]), [], "{number}");
    }
    // xor %eax,%eax; syscall
    assert_eq!(unlisted(b"\x31\xc0\x0f\x05\xc3"), []);
    // mov $28,%eax; int $0x80: unlink there
    assert_eq!(unlisted(b"\xb8\x1c\0\0\0\xcd\x80\xc3"), []);
    // sysenter can't come back to a program of 64 bits.
    assert_eq!(unlisted(b"\xb8\x1c\0\0\0\x0f\x34\xc3"), []);
}

#[test]
fn advice_that_discards_nothing_is_harmless() {
    for (advice, found) in
        [(4u8, Some(MADVISE)), (8, Some(MADVISE)), (9, Some(MADVISE)), (18, Some(MADVISE)), (14, None), (10, None)]
    {
        // mov $advice,%edx; mov $28,%eax; syscall; ret
        let code = [0xba, advice, 0, 0, 0, 0xb8, 0x1c, 0, 0, 0, 0x0f, 0x05, 0xc3];
        assert_eq!(function(&code), found, "{advice}");
    }
    // Its caller's.
    assert_eq!(function(b"\xb8\x1c\0\0\0\x0f\x05\xc3"), Some(MADVISE));
}

#[test]
fn the_two_bytes_inside_other_instructions_are_no_call() {
    // mov $0x050f,%ecx behind mov $28,%eax
    assert_eq!(function(b"\xb8\x1c\0\0\0\xb9\x0f\x05\0\0\xc3"), None);
    // call +0x50f
    assert_eq!(function(b"\xb8\x1c\0\0\0\xe8\x0f\x05\0\0\xc3"), None);
    // lea 0x50f(%rdi),%rsi; mov 0x50f(%rip),%eax
    assert_eq!(function(b"\xb8\x1c\0\0\0\x48\x8d\xb7\x0f\x05\0\0\xc3"), None);
    assert_eq!(function(b"\xb8\x1c\0\0\0\x8b\x0d\x0f\x05\0\0\xc3"), None);
    // mov (%rdi),%ecx; add $imm,%eax: the first's last byte and the second's first
    assert_eq!(function(b"\xb8\x1c\0\0\0\x8b\x0f\x05\x01\0\0\0\xc3"), None);
    // The same where no table says where the function begins.
    let tail = [0x90; 32];
    for inside in
        [&b"\xb9\x0f\x05\0\0"[..], b"\xe8\x0f\x05\0\0", b"\x8b\x0f\x05\x01\0\0\0", b"\x48\x8d\xb7\x0f\x05\0\0"]
    {
        let code = [&tail[..], b"\xb8\x1c\0\0\0", &[0x90; 48], inside, &tail[..]].concat();
        assert_eq!(unlisted(&code), [], "{inside:x?}");
    }
}

#[test]
fn a_number_that_is_passed_loaded_or_computed_counts() {
    // mov %rdi,%rax; mov %rsi,%rdi; syscall; ret
    let passed = b"\x48\x89\xf8\x48\x89\xf7\x0f\x05\xc3";
    assert_eq!(function(passed), Some(Call::Unknown));
    assert_eq!(unlisted(passed), [(6, Call::Unknown)]);
    // mov 8(%rsp),%rax; syscall; ret, as Go has it
    assert_eq!(unlisted(b"\x48\x8b\x44\x24\x08\x0f\x05\xc3"), [(5, Call::Unknown)]);
    // mov $27,%eax; inc %eax; syscall
    assert_eq!(function(b"\xb8\x1b\0\0\0\xff\xc0\x0f\x05\xc3"), Some(Call::Unknown));
    // The result of another call.
    assert_eq!(function(b"\xb8\x01\0\0\0\xe8\0\0\0\0\x0f\x05\xc3"), Some(Call::Unknown));
    // In code made while the program runs only what is certain counts.
    assert_eq!(found(passed, Kind::Generated), []);
    assert_eq!(found(b"\xb8\x1c\0\0\0\x0f\x05\xc3", Kind::Generated), [(5, MADVISE)]);
}

#[test]
fn jumps_bring_numbers_to_the_instruction() {
    // test %edi,%edi; je 1f; mov $28,%eax; jmp 2f; 1: mov $9,%eax; 2: syscall; ret
    let two_ways = b"\x85\xff\x74\x07\xb8\x1c\0\0\0\xeb\x05\xb8\x09\0\0\0\x0f\x05\xc3";
    assert!(matches!(function(two_ways), Some(MADVISE | Call::Unknown)));
    // mov $202,%r8d; test %edi,%edi; je 1f; ret; nop; 1: mov %r8d,%eax; syscall; ret: a constant from before the jump
    assert_eq!(function(b"\x41\xb8\xca\0\0\0\x85\xff\x74\x02\xc3\x90\x44\x89\xc0\x0f\x05\xc3"), None);
    // The same behind a call that never returns.
    let no_return = b"\x41\xb8\xca\0\0\0\x85\xff\x74\x05\xe8\0\0\0\0\x44\x89\xc0\x0f\x05\xc3";
    assert_eq!(function(no_return), None);
    // push %rbx; mov $202,%ebx; je 1f; pop %rbx; ret; 1: mov %ebx,%eax; syscall: restored on the other way only
    assert_eq!(function(b"\x53\xbb\xca\0\0\0\x85\xff\x74\x02\x5b\xc3\x89\xd8\x0f\x05\x5b\xc3"), None);
    // A jump back: 1: syscall; ret; mov $28,%eax; jmp 1b, entered at its end.
    let back = b"\xeb\x03\x0f\x05\xc3\xb8\x1c\0\0\0\xeb\xf6";
    assert!(matches!(function(back), Some(MADVISE | Call::Unknown)));
    // mov $9,%eax; 1: syscall; ret; mov $28,%eax; jmp 1b
    assert_eq!(function(b"\xb8\x09\0\0\0\x0f\x05\xc3\xb8\x1c\0\0\0\xeb\xf6"), Some(MADVISE));
}

#[test]
fn the_engines_own_calls_are_known_by_their_marker() {
    let mut own = b"\x48\x89\xf8\x0f\x05\xc3".to_vec();
    assert_eq!(unlisted(&own), [(3, Call::Unknown)]);
    own.extend(OWN);
    assert_eq!(unlisted(&own), []);
}

#[test]
fn nothing_is_missed_where_windows_meet() {
    let code = b"\xb8\x1c\0\0\0\x0f\x05\xc3";
    let mut memory = vec![0x90; 2 * WINDOW];
    for at in WINDOW - 70..WINDOW + 10 {
        memory.fill(0x90);
        memory[at..at + code.len()].copy_from_slice(code);
        let mut all = Vec::new();
        let range = Range::new(START, START + memory.len());
        sites(&mut Code(START, &memory), range, Kind::Unlisted, &mut |site| {
            all.push(site.at - START);
            true
        });
        assert_eq!(all, [at + 5]);
    }
}

#[test]
fn the_first_and_the_last_bytes_of_code_are_looked_at() {
    let code = b"\xb8\x1c\0\0\0\x0f\x05";
    let range = Range::new(START, START + code.len());
    let mut count = 0;
    assert!(sites(&mut Code(START, code), range, Kind::Unlisted, &mut |_| {
        count += 1;
        true
    }));
    assert_eq!(count, 1);
    let beyond = Range::new(START, START + 100);
    assert!(!sites(&mut Code(START, code), beyond, Kind::Unlisted, &mut |_| true), "what can't be read is said");
}

#[test]
fn many_matches_in_a_row_are_all_looked_at() {
    let code = b"\xb8\x1c\0\0\0\x0f\x05".repeat(3000);
    assert_eq!(unlisted(&code).len(), 3000);
}

/// Whatever bytes there are, looking at them ends, and finds what stands there in plain sight.
#[test]
fn random_bytes_are_looked_at_and_plain_calls_among_them_are_found() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..40 {
        let mut code: Vec<u8> = (0..1024).map(|_| random() as u8).collect();
        if round % 2 == 0 {
            // Many beginnings of matches.
            for _ in 0..50 {
                let at = random() as usize % 1023;
                code[at..at + 2].copy_from_slice(&[0x0f, 0x05]);
            }
        }
        let at = 100 + random() as usize % 900;
        code[at..at + 7].copy_from_slice(b"\xb8\x1c\0\0\0\x0f\x05");
        let all = unlisted(&code);
        assert!(all.contains(&(at + 5, MADVISE)), "round {round}: {all:x?}");
        for kind in [Kind::Listed(START), Kind::Listed(START + 17), Kind::Generated] {
            let range = Range::new(START, START + code.len());
            sites(&mut Code(START, &code), range, kind, &mut |_| true);
        }
        layout(&mut Code(START, &code), START);
        let start = random() as usize % 900;
        let _ = decode::in_function(&code[start..], 64);
    }
}

/// Headers with nonsense in them lead nowhere.
#[test]
fn damaged_headers_are_survived() {
    let sound = std::fs::read("/proc/self/exe").unwrap();
    let head = &sound[..sound.len().min(1 << 16)];
    assert!(layout(&mut Code(START, head), START).is_some());
    for at in 0..1024 {
        for value in [0, 0x7f, 0xff] {
            let mut damaged = head.to_vec();
            damaged[at] = value;
            let layout = layout(&mut Code(START, &damaged), START);
            if let Some(table) = layout.and_then(|l| l.functions) {
                object::function(&mut Code(START, &damaged), table, START + 4096);
            }
        }
    }
}

#[test]
fn words_stand_for_what_was_found() {
    for call in [MADVISE, Call::Number(440), Call::Unknown, Call::Go, Call::Unreadable] {
        assert_eq!(Call::from_word(call.to_word()), Some(call));
    }
    assert_eq!(Call::from_word(0), None);
    assert_eq!(Call::from_word(1), None, "all was well");
}
