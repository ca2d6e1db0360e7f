//! What `perl.pl` can't say in Perl: where the program that perl compiles comes from, and what it is called.
//!
//! perl reads a program's lines through its source filters (perlfilter(1), toke.c), and a filter in C sees the lines
//! before any other. The one here puts lines before those of the file, and has the lines of a program from standard
//! input come out of perl's own `STDIN`, so that what follows `__END__` is still there to be read.

use super::template::Single;
use core::{
	ffi::{CStr, c_char, c_int, c_void},
	mem::transmute,
	ptr::null_mut,
};
use flashfork_core::Errno;

/// A perl's own structures, opaque here: an interpreter, a scalar or a stream.
type Pointer = *mut c_void;

/// The lines that come first.
struct First {
	at: *const u8,
	len: usize,
	/// Lines of the file left out behind them.
	left_out: usize,
	/// Whether the others come from standard input.
	input: bool,
}

static FIRST: Single<First> = Single::new(First { at: core::ptr::null(), len: 0, left_out: 0, input: false });

/// The functions used here, by their names in perlapi(1). Perls built for threads take the interpreter as the first
/// argument of each, others take none.
struct Api {
	/// Null in a perl built without threads.
	interpreter: Pointer,
}

impl Api {
	fn new() -> Option<Api> {
		// SAFETY: every perl has this function, of no arguments.
		unsafe {
			let get: unsafe extern "C" fn() -> Pointer = transmute(Self::find(c"Perl_get_context")?);
			Some(Api { interpreter: get() })
		}
	}

	fn find(name: &CStr) -> Option<Pointer> {
		// SAFETY: a look-up.
		let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
		(!found.is_null()).then_some(found)
	}

	/// Calls a function that takes up to three words and returns one.
	///
	/// # Safety
	/// The function takes these, after the interpreter. Behind its last argument there are words that it doesn't look
	/// at, as the calling convention allows.
	unsafe fn call(&self, name: &CStr, a: usize, b: usize, c: usize) -> Option<usize> {
		// SAFETY: as the caller says.
		unsafe {
			let function = Self::find(name)?;
			Some(if self.interpreter.is_null() {
				transmute::<Pointer, unsafe extern "C" fn(usize, usize, usize) -> usize>(function)(a, b, c)
			} else {
				let function: unsafe extern "C" fn(Pointer, usize, usize, usize) -> usize = transmute(function);
				function(self.interpreter, a, b, c)
			})
		}
	}

	unsafe fn append(&self, scalar: Pointer, bytes: *const u8, len: usize) -> Option<c_int> {
		// SAFETY: `sv_catpvn_flags` takes a scalar, bytes, their number and flags, of which there are none here.
		unsafe {
			let function = Self::find(c"Perl_sv_catpvn_flags")?;
			if self.interpreter.is_null() {
				let function: unsafe extern "C" fn(Pointer, *const u8, usize, c_int) = transmute(function);
				function(scalar, bytes, len, 0);
			} else {
				let function: unsafe extern "C" fn(Pointer, Pointer, *const u8, usize, c_int) = transmute(function);
				function(self.interpreter, scalar, bytes, len, 0);
			}
			Some(c_int::from(len > 0))
		}
	}

	/// The filter: appends the next line to a scalar, or up to `most` bytes if that is not 0. Positive for some, 0 at
	/// the end, negative for an error.
	unsafe fn read(&self, index: c_int, scalar: Pointer, most: c_int) -> Option<c_int> {
		// SAFETY: perl calls its filters in its one thread; the lines stay where they are, the rest is perl's.
		unsafe {
			let first = FIRST.get();
			if first.len > 0 {
				let text = core::slice::from_raw_parts(first.at, first.len);
				// A line whatever was asked for, as `read_e_script` has it for -e (perl.c).
				let len = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1);
				(first.at, first.len) = (text[len..].as_ptr(), text.len() - len);
				return self.append(scalar, text.as_ptr(), len);
			}
			while first.left_out > 0 {
				first.left_out -= 1;
				let nowhere = self.call(c"Perl_newSVpvn", c"".as_ptr() as usize, 0, 0)?;
				self.call(c"Perl_filter_read", index as usize + 1, nowhere, 0)?;
			}
			if !first.input {
				let most = most as usize;
				return self
					.call(c"Perl_filter_read", index as usize + 1, scalar as usize, most)
					.map(|got| got as c_int);
			}
			// As `Perl_filter_read` has it for the file.
			let stream = self.call(c"Perl_PerlIO_stdin", 0, 0, 0)?;
			if most > 0 {
				let mut block = [0u8; 4096];
				let room = block.len().min(most as usize);
				let got = self.call(c"Perl_PerlIO_read", stream, block.as_mut_ptr() as usize, room)? as isize;
				return if got > 0 { self.append(scalar, block.as_ptr(), got as usize) } else { Some(got as c_int) };
			}
			let before = self.call(c"Perl_sv_len", scalar as usize, 0, 0)?;
			let line = self.call(c"Perl_sv_gets", scalar as usize, stream, before)?;
			Some(c_int::from(line != 0))
		}
	}
}

unsafe extern "C" fn filter(_interpreter: Pointer, index: c_int, scalar: Pointer, most: c_int) -> c_int {
	// SAFETY: called by perl with what it gives its filters.
	unsafe { Api::new().and_then(|api| api.read(index, scalar, most)).unwrap_or(-1) }
}

unsafe extern "C" fn filter_without_threads(index: c_int, scalar: Pointer, most: c_int) -> c_int {
	// SAFETY: as above.
	unsafe { Api::new().and_then(|api| api.read(index, scalar, most)).unwrap_or(-1) }
}

/// Answers [`flashfork_warm::CALL_PROGRAM`].
///
/// # Safety
/// While perl compiles its main program. The name ends with a NUL, and the lines are as long as said.
pub unsafe fn program(name: *const c_char, lines: *const u8, len: usize, left_out: usize) -> Result<isize, Errno> {
	// SAFETY: one thread; the copy is never freed.
	unsafe {
		let kept = libc::malloc(len).cast::<u8>();
		if kept.is_null() {
			return Err(Errno::ENOMEM);
		}
		kept.copy_from_nonoverlapping(lines, len);
		*FIRST.get() = First { at: kept, len, left_out, input: CStr::from_ptr(name) == c"-" };
		let filtered = || {
			let api = Api::new()?;
			let function = if api.interpreter.is_null() {
				filter_without_threads as *const () as usize
			} else {
				filter as *const () as usize
			};
			api.call(c"Perl_filter_add", function, null_mut::<c_void>() as usize, 0)
		};
		filtered().ok_or(Errno::ENOSYS)?;
		self::name(name)
	}
}

/// Answers [`flashfork_warm::CALL_NAME`].
///
/// # Safety
/// The name ends with a NUL.
pub unsafe fn name(name: *const c_char) -> Result<isize, Errno> {
	// SAFETY: perl's one thread; `sv_setpv` copies the name.
	let named = || unsafe {
		let api = Api::new()?;
		let scalar = api.call(c"Perl_get_sv", c"0".as_ptr() as usize, 1, 0)?;
		api.call(c"Perl_sv_setpv", scalar, name as usize, 0)
	};
	named().map(|_| 0).ok_or(Errno::ENOSYS)
}
