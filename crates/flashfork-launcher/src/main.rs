//! `flashfork`, as it is typed: runs a plain `flashfork clone NAME ARGS…` to its end, and becomes the command proper,
//! `flashfork-cli`, for all else.
//!
//! Most of what a clone takes is processes starting and ending. So this one has no C library, nothing to relocate, and
//! a handful of pages. What it can't do, above all tell somebody in words what went wrong, it leaves to the command:
//! before the clone is asked for, and where there is none because its template is stale, by beginning anew there
//! ([`line::Line::hand_on`]), and afterwards by handing on the connection to its template as it is ([`attend`]). Every
//! failure in here has that way out, so none is told apart.
#![no_std]
#![no_main]

mod attend;
mod bytes;
mod caller;
mod line;
mod request;
mod system;
mod template;

use line::Line;

core::arch::global_asm!(
	".globl _start",
	"_start:",
	// The outermost frame.
	"xor ebp, ebp",
	"mov rdi, rsp",
	"and rsp, -16",
	"call {run}",
	run = sym run,
);

/// What the kernel starts, with what it has put on the stack.
extern "C" fn run(stack: *const usize) -> ! {
	// SAFETY: the stack of a process that begins.
	let line = unsafe { Line::new(stack) };
	if let Some(asked) = plain_clone(&line) {
		attend::attend(&line, asked);
	}
	line.hand_on(None)
}

/// Asks for a clone, if that is what the command line says, plainly; `None` when none has been asked for.
fn plain_clone(line: &Line) -> Option<request::Asked> {
	let name = line.argument(2).filter(|_| line.argument(1) == Some(b"clone"))?;
	let name = core::str::from_utf8(name).ok().filter(|name| flashfork_warm::is_name(name))?;
	// As of a command told where its options end.
	let first = if line.argument(3) == Some(b"--") { 4 } else { 3 };
	// Descriptors made here would come in place of those that are closed.
	if !(0..3).all(system::is_open) {
		return None;
	}
	let template = template::connect(line, name)?;
	request::ask(line, first, template)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
	// Not reached by design; as of a program in Rust that has panicked.
	system::exit(101)
}
