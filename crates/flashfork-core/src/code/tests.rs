//! Hand-made machine code.

use super::*;

/// Code at an address, and nothing else.
pub(super) struct Bytes<'a>(pub(super) usize, pub(super) &'a [u8]);

impl Memory for Bytes<'_> {
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
	let all = all_in(&padded, kind);
	all.into_iter().map(|(at, call)| (at - 80, call)).collect()
}

fn all_in(bytes: &[u8], kind: Kind) -> Vec<(usize, Call)> {
	let mut all = Vec::new();
	assert!(look(bytes, bytes.len(), kind, |site| {
		all.push((site.at - START, site.call));
		true
	}));
	all
}

/// Looks at so many bytes of code, of which these can be read.
fn look(bytes: &[u8], len: usize, kind: Kind, mut each: impl FnMut(Site) -> bool) -> bool {
	let scratch = Scratch::map().unwrap();
	let code = Code { ranges: &[Range::new(START, START + len)], data: &[], kind, fixed: true };
	let readable = sites(&mut Bytes(START, bytes), &code, scratch, &mut each);
	scratch.unmap();
	readable
}

/// What a function with these bytes calls, at the first system call in it.
fn function(code: &[u8]) -> Option<Call> {
	entered(code, &[])
}

/// The same when code comes to these offsets from elsewhere.
fn entered(code: &[u8], places: &[usize]) -> Option<Call> {
	let scratch = Scratch::map().unwrap();
	scratch.flow.begin(code).unwrap();
	for place in places {
		scratch.flow.enter(*place).unwrap();
	}
	scratch.flow.solve().unwrap();
	let mut calls = Vec::new();
	let told = scratch.flow.calls(|at, call, _| calls.push((at, call)));
	scratch.unmap();
	match told {
		Ok(()) => calls.into_iter().min_by_key(|(at, _)| *at)?.1,
		Err(TooMuch) => Some(Call::Unknown),
	}
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
	for number in [0u8, 1, 8, 11, 12, 27, 202] {
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
fn what_may_map_code_counts_unless_its_protection_is_known() {
	for (call, number, compatible) in [(9, 9u16, 192u16), (10, 10, 125), (329, 329, 380)] {
		for (prot, found) in [(1u8, false), (3, false), (5, true), (7, true)] {
			for (number, instruction) in [(number, b"\x0f\x05"), (compatible, b"\xcd\x80")] {
				// mov $prot,%edx; mov $number,%eax; syscall; ret
				let [low, high] = number.to_le_bytes();
				let mut code = vec![0xba, prot, 0, 0, 0, 0xb8, low, high, 0, 0];
				code.extend(instruction);
				code.push(0xc3);
				assert_eq!(function(&code), found.then_some(Call::Number(call)), "{code:x?}");
				// Its caller's, or not known where no table says where the function begins.
				assert_eq!(function(&code[5..]), Some(Call::Number(call)));
				assert_eq!(unlisted(&code), [(10, Call::Number(call))]);
			}
		}
	}
	// Where int $0x80 has its arguments in memory.
	assert_eq!(function(b"\xba\x01\0\0\0\xb8\x5a\0\0\0\xcd\x80\xc3"), Some(Call::Number(u32::MAX)));
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
	let call = b"\x41\xb8\xca\0\0\0\x85\xff\x74\x05\xe8\0\0\0\0\x44\x89\xc0\x0f\x05\xc3";
	assert_eq!(function(call), None);
	// mov $28,%r8d; call; 1: mov %r8d,%eax; syscall; ret; mov $202,%r8d; jmp 1b: the call may leave it as it was.
	let left = b"\x41\xb8\x1c\0\0\0\xe8\0\0\0\0\x44\x89\xc0\x0f\x05\xc3\x41\xb8\xca\0\0\0\xeb\xf2";
	assert_eq!(function(left), Some(MADVISE));
	// mov $202,%ebx and mov %ebx,%eax: kept by what is called.
	let kept = b"\xbb\xca\0\0\0\x85\xff\x74\x05\xe8\0\0\0\0\x89\xd8\x0f\x05\xc3";
	assert_eq!(function(kept), None);
	// push %rbx; mov $202,%ebx; je 1f; pop %rbx; ret; 1: mov %ebx,%eax; syscall: restored on the other way only
	assert_eq!(function(b"\x53\xbb\xca\0\0\0\x85\xff\x74\x02\x5b\xc3\x89\xd8\x0f\x05\x5b\xc3"), None);
	// A jump back: 1: syscall; ret; mov $28,%eax; jmp 1b, entered at its end.
	let back = b"\xeb\x03\x0f\x05\xc3\xb8\x1c\0\0\0\xeb\xf6";
	assert!(matches!(function(back), Some(MADVISE | Call::Unknown)));
	// mov $9,%eax; 1: syscall; ret; mov $28,%eax; jmp 1b
	assert_eq!(function(b"\xb8\x09\0\0\0\x0f\x05\xc3\xb8\x1c\0\0\0\xeb\xf6"), Some(MADVISE));
}

#[test]
fn loops_bring_numbers_and_advice_back() {
	// mov $26,%eax; 1: syscall; then on the way back mov $28,%eax, or add $2,%eax, or mov (%rsi),%eax; jne 1b; ret
	assert_eq!(function(b"\xb8\x1a\0\0\0\x0f\x05\xb8\x1c\0\0\0\x75\xf7\xc3"), Some(MADVISE));
	assert_eq!(function(b"\xb8\x1a\0\0\0\x0f\x05\x83\xc0\x02\x75\xf9\xc3"), Some(Call::Unknown));
	assert_eq!(function(b"\xb8\x1a\0\0\0\x0f\x05\x8b\x06\x75\xfa\xc3"), Some(Call::Unknown));
	// mov $14,%edx; 1: mov $28,%eax; syscall; mov $4,%edx (or nothing); jne 1b; ret
	assert_eq!(function(b"\xba\x0e\0\0\0\xb8\x1c\0\0\0\x0f\x05\xba\x04\0\0\0\x75\xf2\xc3"), Some(MADVISE));
	assert_eq!(function(b"\xba\x0e\0\0\0\xb8\x1c\0\0\0\x0f\x05\x75\xf7\xc3"), None);
}

#[test]
fn what_enters_the_middle_brings_anything() {
	// mov $39,%eax; syscall; ret
	let code = b"\xb8\x27\0\0\0\x0f\x05\xc3";
	assert_eq!(entered(code, &[]), None);
	assert_eq!(entered(code, &[0]), None, "the beginning is not the middle");
	assert_eq!(entered(code, &[5]), Some(Call::Unknown));
	// lea 1f(%rip),%r8; mov $39,%eax; 1: syscall; ret: somebody may have the address
	assert_eq!(function(b"\x4c\x8d\x05\x05\0\0\0\xb8\x27\0\0\0\x0f\x05\xc3"), Some(Call::Unknown));
	// movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax: no table is there, so it may lead anywhere.
	let table = b"\x48\x63\x04\x82\x48\x01\xd0\xff\xe0\xb8\x27\0\0\0\x0f\x05\xc3";
	assert_eq!(function(table), Some(Call::Unknown));
	// mov 8(%rdi),%rax; jmp *%rax: to another function, or to an address found where it stands.
	assert_eq!(function(b"\x48\x8b\x47\x08\xff\xe0\xb8\x27\0\0\0\x0f\x05\xc3"), None);
}

#[test]
fn prefixes_change_nothing() {
	for prefix in [0x48, 0x66, 0xf2, 0x2e, 0x64] {
		let code = [&b"\xb8\x1c\0\0\0"[..], &[prefix], b"\x0f\x05\xc3"].concat();
		assert_eq!(function(&code), Some(MADVISE), "{prefix:x}");
		assert_eq!(unlisted(&code), [(6, MADVISE)], "{prefix:x}");
	}
}

#[test]
fn without_a_table_a_number_is_loaded_straight_before_or_not_told() {
	// xor %eax,%eax; mov $28,%al; syscall; ret, and mov $14,%eax; add %eax,%eax; syscall; ret
	assert_eq!(unlisted(b"\x31\xc0\xb0\x1c\x0f\x05\xc3"), [(4, Call::Unknown)]);
	assert_eq!(unlisted(b"\xb8\x0e\0\0\0\x01\xc0\x0f\x05\xc3"), [(7, Call::Unknown)]);
	// mov $39,%eax; 1: syscall; ret; mov $28,%eax; jmp 1b, near and far
	let near = b"\xb8\x27\0\0\0\x0f\x05\xc3\xb8\x1c\0\0\0\xeb\xf6";
	assert_eq!(unlisted(near), [(5, Call::Unknown)]);
	let far = b"\xb8\x27\0\0\0\x0f\x05\xc3\xb8\x1c\0\0\0\xe9\xf3\xff\xff\xff";
	assert_eq!(unlisted(far), [(5, Call::Unknown)]);
	assert_eq!(unlisted(&near[..8]), []);
}

#[test]
fn a_constant_of_8_bytes_and_the_beginning_of_a_transaction_lead_into_the_middle() {
	// mov $39,%eax; 1: syscall; ret; mov $28,%eax; movabs $1b,%rcx; jmp *%rcx
	let mut code = b"\xb8\x27\0\0\0\x0f\x05\xc3\xb8\x1c\0\0\0\x48\xb9".to_vec();
	code.extend((START + 80 + 5).to_le_bytes());
	code.extend(b"\xff\xe1");
	assert_eq!(unlisted(&code), [(5, Call::Unknown)]);
	// mov $39,%eax; 1: syscall; ret; mov $28,%eax; xbegin 1b
	assert_eq!(unlisted(b"\xb8\x27\0\0\0\x0f\x05\xc3\xb8\x1c\0\0\0\xc7\xf8\xf2\xff\xff\xff"), [(5, Call::Unknown)]);
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
		assert_eq!(all_in(&memory, Kind::Unlisted), [(at + 5, MADVISE)]);
	}
}

#[test]
fn the_first_and_the_last_bytes_of_code_are_looked_at() {
	let code = b"\xb8\x1c\0\0\0\x0f\x05";
	assert_eq!(all_in(code, Kind::Unlisted), [(5, MADVISE)]);
	assert!(!look(code, 100, Kind::Unlisted, |_| true), "what can't be read is said");
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
			look(&code, code.len(), kind, |_| true);
		}
		layout(&mut Bytes(START, &code), START);
		let start = random() as usize % 900;
		entered(&code[start..], &[64]);
	}
}

#[test]
fn damaged_headers_are_survived() {
	let sound = std::fs::read("/proc/self/exe").unwrap();
	let head = &sound[..sound.len().min(1 << 16)];
	assert!(layout(&mut Bytes(START, head), START).is_some());
	for at in 0..1024 {
		for value in [0, 0x7f, 0xff] {
			let mut damaged = head.to_vec();
			damaged[at] = value;
			let layout = layout(&mut Bytes(START, &damaged), START);
			if let Some(table) = layout.and_then(|l| l.functions) {
				let function = object::function(&mut Bytes(START, &damaged), table, START + 4096);
				function.and_then(|f| object::landing_pads(&mut Bytes(START, &damaged), &f, |_| {}));
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
