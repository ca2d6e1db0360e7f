//! Generators of random numbers in libraries that don't ask for the process's number to notice a new process: two
//! clones must not draw alike.
//!
//! Those of OpenSSL and libgcrypt ask, and clones have a new number. GnuTLS (lib/atfork.c) has a counter, which its
//! handler of `pthread_atfork(3)` changes and nothing else: it is called in each clone, and so is every other that
//! nothing but counts ([`counters`]). The rest aren't: they take apart what is alive in clones. NSS (freebl/drbg.c),
//! Mbed TLS (ctr_drbg.c), Crypto++ (AutoSeededRandomPool), BearSSL (hmac_drbg.c) and Rust's `rand` from 0.9 on
//! ([`linked`]) notice nothing.
//!
//! Clones of Ruby have their template's number, because Ruby compares. Those libraries that ask are told another there,
//! by the shim's `getpid`, which knows them by their [`Code`]. The other way about, libraries that compare the number
//! and give up what is alive are told the template's in all other clones: Python's asyncio (before 3.12) forgets that
//! its loop runs, and ZeroMQ's threads don't wake each other any more.

use super::{
	counters,
	frozen::{Code, Frozen, Handlers},
	linked,
	unfit::{Fit, NAME, Unfit, What},
};
use crate::{
	proc::vma,
	range::Range,
	sys::{PROT_EXEC, PROT_WRITE},
};

/// How names of libraries begin: of those whose handler is called, and of those that can't be renewed.
const CALLED: &[u8] = b"libgnutls.so";
/// Those that ask for the process's number.
const ASKING: [&[u8]; 2] = [b"libcrypto.so", b"libgcrypt.so"];
/// Those that compare it, and give up.
const COMPARING: [&[u8]; 2] = [b"_asyncio.", b"libzmq"];
/// Their handler counts, but no generator does: what it is for would have to be begun anew (PKCS #11).
const LEFT: &[u8] = b"libp11-kit.so";
const REFUSED: [&[u8]; 7] = [
	b"libsoftokn3.so",
	b"libfreeblpriv3.so",
	b"libmbedcrypto.so",
	b"libtfpsacrypto.so",
	b"libcryptopp.so",
	b"libcrypto++.so",
	b"libbearssl.so",
];

impl Frozen {
	/// Where the code of libraries is that ask for the process's number to notice a new process.
	pub fn asking(&self) -> &Code {
		&self.asking
	}

	/// Where the code of libraries is that would give up what is alive in clones, and the number with which they go on:
	/// the template's.
	pub fn comparing(&self) -> (&Code, i32) {
		(&self.comparing, self.pid)
	}
}

/// Looks which libraries there are. `noted`: addresses of what was registered to run in children. `renews`: the program
/// renews what it has linked itself.
pub fn look(frozen: &mut Frozen, noted: impl Iterator<Item = usize> + Clone, renews: bool) -> Fit {
	let Frozen { text, list, handlers, asking, comparing, .. } = frozen;
	(handlers.count, asking.count, comparing.count) = (0, 0, 0);
	let mut unfit = None;
	vma::for_each_mapping(text, |v, path| {
		let name = path.rsplit(|b| *b == b'/').next().unwrap_or(b"");
		if !renews && v.kind == vma::Kind::File && !v.shared && v.prot & PROT_WRITE == 0 {
			linked::find(v.range, list, |name| {
				unfit = unfit.or(Some(Unfit::named(What::Crate, 0, name)));
			});
		}
		if v.prot & PROT_EXEC == 0 {
			return Ok(());
		}
		let is_one_of = |names: &[&[u8]]| names.iter().any(|begin| name.starts_with(begin));
		let mut here = noted.clone().filter(|at| v.range.contains(*at));
		let renewed = if is_one_of(&[CALLED]) {
			handlers.take(here.next())
		} else {
			is_one_of(&[LEFT]) || here.filter(|at| counters::counts(*at)).all(|handler| handlers.take(Some(handler)))
		};
		let fits = (!is_one_of(&ASKING) || asking.take(v.range)) && (!is_one_of(&COMPARING) || comparing.take(v.range));
		if !fits || !renewed || is_one_of(&REFUSED) {
			unfit = unfit.or(Some(Unfit::named(What::Generator, 0, &name[..name.len().min(NAME)])));
		}
		Ok(())
	})?;
	unfit.map_or(Ok(()), Err)
}

impl Code {
	/// False without room.
	fn take(&mut self, range: Range) -> bool {
		let Some(place) = self.all.get_mut(self.count) else { return false };
		*place = range;
		self.count += 1;
		true
	}
}

impl Handlers {
	/// False where there is none, or no room. Each is called once.
	fn take(&mut self, handler: Option<usize>) -> bool {
		let Some(handler) = handler else { return false };
		if self.all[..self.count].contains(&handler) {
			return true;
		}
		let Some(place) = self.all.get_mut(self.count) else { return false };
		*place = handler;
		self.count += 1;
		true
	}

	/// In a clone, before its threads run.
	pub fn call(&self) {
		for handler in &self.all[..self.count] {
			// SAFETY: code of the library that has registered it, to be called without arguments in a new process. It
			// takes no lock and nothing of the C library's.
			unsafe { core::mem::transmute::<usize, extern "C" fn()>(*handler)() };
		}
	}
}
