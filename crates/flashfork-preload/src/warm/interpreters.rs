//! Perl and Ruby: their own `main` runs, with arguments that have it do the warm-up, wait, and in clones run what the
//! callers name. `perl.pl` and `ruby.rb` do it in their own language; they reach the shim by `syscall` (see
//! `script.rs`) and fork by their own `fork`.

use super::{
	process::name_of_program,
	template::{MAIN, Main, Single},
	variables,
};
use core::{
	ffi::{CStr, c_char, c_int, c_void},
	fmt::Write,
};
use flashfork_warm::{CALL, CALL_NAME};

const WORDS: usize = 256;

/// The descriptor of the text that `perl.pl` or `ruby.rb` is read from; -1 for none. Clones have no use for it.
pub static TEXT: Single<c_int> = Single::new(-1);

#[derive(Clone, Copy, PartialEq)]
enum Language {
	Perl,
	Ruby,
}

impl Language {
	fn variables(self) -> &'static [&'static CStr] {
		match self {
			Language::Perl => flashfork_warm::variables::PERL,
			Language::Ruby => flashfork_warm::variables::RUBY,
		}
	}

	/// Whether an option tells the interpreter to do something with the program, or before it, which it does for the
	/// warm-up alone: a debugger, a search for it, lines to skip.
	fn keeps_from_clones(self, option: &[u8]) -> bool {
		let all: &[u8] = match self {
			Language::Perl => b"dSx",
			Language::Ruby => b"Sx",
		};
		option.get(1).is_some_and(|letter| all.contains(letter))
	}
}

fn language() -> Option<Language> {
	let all = [(&b"perl"[..], Language::Perl), (b"ruby", Language::Ruby)];
	all.into_iter().find(|(name, _)| name_of_program(name)).map(|(_, language)| language)
}

/// Whether this program is one of them.
pub fn is_here() -> bool {
	language().is_some()
}

struct Words {
	all: [*mut c_char; WORDS],
	count: usize,
}

impl Words {
	fn push(&mut self, word: *mut c_char) {
		// The last stays null, as main expects. Words beyond are none that anybody types.
		if self.count < WORDS - 1 {
			self.all[self.count] = word;
			self.count += 1;
		}
	}
}

/// In place of the interpreter's main; calls it.
pub unsafe extern "C" fn main(argc: c_int, argv: *mut *mut c_char, env: *mut *mut c_char) -> c_int {
	// SAFETY: as the C library calls main; one thread. What is built here lives while main does.
	unsafe {
		let (Some(main), Some(language)) = (*MAIN.get(), language()) else { libc::abort() };
		let words = core::slice::from_raw_parts(argv, argc as usize);
		variables::note(language.variables());
		let mut new = Words { all: [core::ptr::null_mut(); WORDS], count: 0 };
		let mut code = None;
		let mut at = 1;
		new.push(words[0]);
		while at < words.len() {
			let word = CStr::from_ptr(words[at]).to_bytes();
			if word.len() < 2 || word[0] != b'-' {
				break;
			}
			if word == b"-e" && at + 1 < words.len() {
				code = Some(words[at + 1]);
				at += 2;
				break;
			}
			if language.keeps_from_clones(word) {
				say(b"flashfork: clones can't do what -d, -S and -x ask for: start it without them\n");
				return 2;
			}
			if word[1..].starts_with(b"-")
				|| !word.ends_with(b"e")
				|| !word[1..].iter().all(|b| b"acelnpsStTuUwWX".contains(b))
			{
				new.push(words[at]);
			} else {
				say(b"flashfork: write -e as a word of its own, once\n");
				return 2;
			}
			at += 1;
			// Options whose value is the next word.
			if [&b"-I"[..], b"-r", b"-C", b"-E"].contains(&word) && at < words.len() {
				new.push(words[at]);
				at += 1;
			}
		}
		match language {
			Language::Perl => perl(&mut new, code, words, at),
			Language::Ruby => ruby(&mut new, code, words, at),
		}
		run(main, &mut new, env)
	}
}

unsafe fn run(main: Main, words: &mut Words, env: *mut *mut c_char) -> c_int {
	// SAFETY: a table of strings that a null ends.
	unsafe { main(words.count as c_int, words.all.as_mut_ptr(), env) }
}

/// `perl OPTIONS -M-integer;BEGIN{…} /dev/fd/N …`: the text runs while the program is compiled, before its first line
/// is read, and in clones puts the caller's program behind N.
unsafe fn perl(new: &mut Words, code: Option<*mut c_char>, words: &[*mut c_char], at: usize) {
	// SAFETY: strings that end with a NUL; descriptors are checked.
	unsafe {
		let script = memfd(&[]);
		let warm_up = match code {
			Some(code) => CStr::from_ptr(code).to_bytes(),
			None if at < words.len() => {
				b"{ my ($f) = shift(@ARGV) =~ /(.*)/s; $flashfork_name->($f); defined(do(($f =~ m{^/} ? '' : './') . $f)) || !$@ || die $@; }"
			}
			None => b"",
		};
		// The warm-up finds in `$0` what it would find in perl itself.
		let name = Line::new(format_args!(
			"my $flashfork = {script}; my $flashfork_name; BEGIN {{ $flashfork_name = sub {{ my ($name) = $_[0] =~ /(.*)/s; syscall {CALL}, {CALL_NAME}, $name }}; $flashfork_name->('-e') }}"
		));
		let text = memfd(&[
			name.bytes(),
			b"\n#line 1 \"-e\"\n",
			warm_up,
			b"\n;\n#line 1 \"flashfork\"\n",
			include_bytes!("perl.pl"),
		]);
		*TEXT.get() = text;
		// A pragma that says what is so anyway: it would be the program's.
		new.push(Line::new(format_args!("-M-integer;BEGIN{{(do(q(/dev/fd/{text}))||die $@)->()}}")).word());
		new.push(Line::new(format_args!("/dev/fd/{script}")).word());
		words[at..].iter().for_each(|word| new.push(*word));
	}
}

/// `ruby OPTIONS -e CODE -e "load '/dev/fd/N'" …`.
unsafe fn ruby(new: &mut Words, code: Option<*mut c_char>, words: &[*mut c_char], at: usize) {
	// SAFETY: as above.
	unsafe {
		let option = c"-e".as_ptr().cast_mut();
		let text = memfd(&[include_bytes!("ruby.rb")]);
		*TEXT.get() = text;
		new.push(option);
		new.push(match code {
			Some(code) => code,
			None if at < words.len() => c"load ARGV.shift".as_ptr().cast_mut(),
			None => c"nil".as_ptr().cast_mut(),
		});
		new.push(option);
		new.push(Line::new(format_args!("load '/dev/fd/{text}'")).word());
		words[at..].iter().for_each(|word| new.push(*word));
	}
}

/// A text for C, in memory of the C library's that is never freed.
struct Line {
	at: *mut u8,
	len: usize,
}

/// Longer than any text written here.
const LINE: usize = 256;

impl Line {
	fn new(parts: core::fmt::Arguments<'_>) -> Line {
		// SAFETY: memory for a line, all NULs.
		let at = unsafe { libc::calloc(1, LINE) }.cast::<u8>();
		if at.is_null() {
			// SAFETY: there is nothing to go on with.
			unsafe { libc::abort() };
		}
		let mut line = Line { at, len: 0 };
		// It fails for a line that is too long, which none is.
		let _ = line.write_fmt(parts);
		line
	}

	fn bytes(&self) -> &[u8] {
		// SAFETY: so many were written.
		unsafe { core::slice::from_raw_parts(self.at, self.len) }
	}

	fn word(&self) -> *mut c_char {
		self.at.cast()
	}
}

impl Write for Line {
	fn write_str(&mut self, text: &str) -> core::fmt::Result {
		if self.len + text.len() >= LINE {
			return Err(core::fmt::Error);
		}
		// SAFETY: there is room, and a NUL behind it.
		unsafe { self.at.add(self.len).copy_from_nonoverlapping(text.as_ptr(), text.len()) };
		self.len += text.len();
		Ok(())
	}
}

/// A descriptor from which these are read.
unsafe fn memfd(parts: &[&[u8]]) -> c_int {
	// SAFETY: plain calls with valid arguments.
	unsafe {
		let fd = libc::syscall(libc::SYS_memfd_create, c"flashfork-text".as_ptr(), libc::MFD_CLOEXEC) as c_int;
		// A limit on the size of files goes for memfds too, and would end the process.
		let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
		for part in parts {
			if libc::write(fd, part.as_ptr().cast(), part.len()) != part.len() as isize {
				say(b"flashfork: no memory for the interpreter's first text, or a limit on the size of files (ulimit -f): raise it\n");
				libc::_exit(1);
			}
		}
		libc::signal(libc::SIGXFSZ, before);
		libc::lseek(fd, 0, libc::SEEK_SET);
		fd
	}
}

fn say(text: &[u8]) {
	// SAFETY: writes a constant; nobody could be told of a failure.
	let _ = unsafe { libc::write(2, text.as_ptr().cast::<c_void>(), text.len()) };
}
