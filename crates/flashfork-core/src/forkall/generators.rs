//! Generators of random numbers in libraries that don't ask for the process's number to notice a new process: two
//! clones must not draw alike.
//!
//! Those of OpenSSL and libgcrypt ask, and clones have a new number. GnuTLS (lib/atfork.c) has a counter, which its
//! handler of `pthread_atfork(3)` changes and nothing else: it is called in each clone, and so is every other that
//! nothing but counts ([`counters`]). The rest aren't: they take apart what is alive in clones. NSS (freebl/drbg.c)
//! notices nothing.
//!
//! Clones of Ruby have their template's number, because Ruby compares. Those libraries that ask are told another there,
//! by the shim's `getpid`, which knows them by their [`Code`].

use super::counters;
use super::frozen::{Code, Frozen, Handlers};
use super::unfit::{NAME, Unfit, What};
use crate::proc::vma;
use crate::sys::PROT_EXEC;

/// How names of libraries begin: of those whose handler is called, and of those that can't be renewed.
const CALLED: &[u8] = b"libgnutls.so";
/// Those that ask for the process's number.
const ASKING: [&[u8]; 2] = [b"libcrypto.so", b"libgcrypt.so"];
const REFUSED: [&[u8]; 2] = [b"libsoftokn3.so", b"libfreeblpriv3.so"];

impl Frozen {
    /// Where the code of libraries is that ask for the process's number to notice a new process.
    pub fn asking(&self) -> &Code {
        &self.asking
    }
}

/// Looks which libraries there are. `noted`: addresses of what was registered to run in children.
pub fn look(frozen: &mut Frozen, noted: impl Iterator<Item = usize> + Clone) -> Result<(), Unfit> {
    let Frozen { text, handlers, asking, .. } = frozen;
    (handlers.count, asking.count) = (0, 0);
    for handler in noted.clone().filter(|at| counters::counts(*at)) {
        if !handlers.take(Some(handler)) {
            return Err(Unfit::named(What::Generator, 0, b"many functions of pthread_atfork"));
        }
    }
    let mut unfit = None;
    vma::for_each_mapping(text, |v, path| {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(b"");
        if v.prot & PROT_EXEC == 0 {
            return Ok(());
        }
        let mut fits = true;
        if ASKING.iter().any(|asking| name.starts_with(asking)) {
            let place = asking.all.get_mut(asking.count);
            fits = place.map(|place| *place = v.range).is_some();
            asking.count += usize::from(fits);
        }
        let renewed = !name.starts_with(CALLED) || handlers.take(noted.clone().find(|at| v.range.contains(*at)));
        if !fits || !renewed || REFUSED.iter().any(|refused| name.starts_with(refused)) {
            unfit = unfit.or(Some(Unfit::named(What::Generator, 0, &name[..name.len().min(NAME)])));
        }
        Ok(())
    })?;
    unfit.map_or(Ok(()), Err)
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
