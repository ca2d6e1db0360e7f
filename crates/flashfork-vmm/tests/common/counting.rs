//! A guest that counts, and can tell whether its memory is that of one moment.

use super::{FORK, exit};
use flashfork_proto::signal::{Done, Signal};
use flashfork_vmm::{cpu::Exit, machine::Machine};

/// Forks, then counts for ever: the count at 0x2000, and in turn in each of 128 pages from 0x10000 on. An `f` that is
/// typed makes it fork again. Any other character ends it: its status is how many of the pages don't hold what was
/// written there last, its result the count and the character.
pub fn counting() -> Vec<u8> {
	[
		&[0x66, 0xc7, 0x06, 0x00, 0x20, 0, 0, 0, 0][..], // mov dword [0x2000], 0
		FORK,
		// again:
		&[0x66, 0xff, 0x06, 0x00, 0x20],                         // inc dword [0x2000]
		&[0x66, 0xa1, 0x00, 0x20],                               // mov eax, [0x2000]
		&[0x89, 0xc3, 0x83, 0xe3, 0x7f],                         // mov bx, ax; and bx, 127
		&[0xc1, 0xe3, 0x08, 0x81, 0xc3, 0x00, 0x10, 0x8e, 0xc3], // shl bx, 8; add bx, 0x1000; mov es, bx
		&[0x26, 0x66, 0xa3, 0x00, 0x00],                         // mov es:[0], eax
		&[0xba, 0xfd, 0x03, 0xec],                               // mov dx, 0x3fd; in al, dx: line status
		&[0xa8, 0x01, 0x74, 0xdc],                               // test al, 1; jz again
		&[0xba, 0xf8, 0x03, 0xec],                               // mov dx, 0x3f8; in al, dx
		&[0x3c, b'f', 0x75, 0x08],                               // cmp al, 'f'; jne finish
		&[0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, 0xeb, 0xcc],       // mov dx, 0x1234; mov al, FORK; out dx, al; jmp again
		// finish:
		&[0x66, 0x0f, 0xb6, 0xe8], // movzx ebp, al
		&[0x66, 0x31, 0xf6],       // xor esi, esi
		&[0x66, 0xa1, 0x00, 0x20], // mov eax, [0x2000]
		&[0xb9, 0x80, 0x00],       // mov cx, 128
		// check:
		&[0x89, 0xc3, 0x83, 0xe3, 0x7f],                         // mov bx, ax; and bx, 127
		&[0xc1, 0xe3, 0x08, 0x81, 0xc3, 0x00, 0x10, 0x8e, 0xc3], // shl bx, 8; add bx, 0x1000; mov es, bx
		&[0x26, 0x66, 0x8b, 0x3e, 0x00, 0x00],                   // mov edi, es:[0]
		&[0x66, 0x39, 0xc7, 0x74, 0x02, 0x66, 0x46],             // cmp edi, eax; je good; inc esi
		&[0x66, 0x48, 0x49, 0x75, 0xe0],                         // good: dec eax; dec cx; jnz check
		&[0xba, 0x3c, 0x12, 0x66, 0x89, 0xf0, 0x66, 0xef],       // mov dx, 0x123c; mov eax, esi; out dx, eax: status
		&[0x66, 0xa1, 0x00, 0x20, 0x66, 0xef],                   // mov eax, [0x2000]; out dx, eax
		&[0x66, 0x89, 0xe8, 0x66, 0xef],                         // mov eax, ebp; out dx, eax
		&[0xba, 0x34, 0x12, 0xb0, 0x20, 0xee, 0xf4],             // mov dx, 0x1234; mov al, DONE; out dx, al; hlt
	]
	.concat()
}

/// What such a guest gave back: it must have counted to 128 at least, so that all pages were written.
pub fn count(done: &Done, typed: u8) -> u32 {
	let (words, _) = done.result.as_chunks();
	let [count, character] = [0, 1].map(|index: usize| u32::from_le_bytes(words[index]));
	assert_eq!((done.status, character), (0, typed.into()), "of {count}");
	count
}

/// Types a character, and gives the count.
pub fn finish(machine: &mut Machine, typed: u8) -> u32 {
	assert_eq!(machine.devices().input(&[typed]), 1);
	match exit(machine) {
		Exit::Signal(Signal::Done(done)) => count(&done, typed),
		other => panic!("{other:?}"),
	}
}
