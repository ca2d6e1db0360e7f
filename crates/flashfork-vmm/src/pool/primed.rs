//! The one shell of a pool that is a template's already, but for what makes a clone one of its own.
//!
//! It is for the template asked for last, and one too many: beside it there are as many for everybody as there were
//! without it. Templates asked for in turn don't take the place from each other, which would cost a shell each time: it
//! is given to another only when that is asked for twice in a row.

use super::{Shell, ShellFailure};
use std::{
	fmt::Debug,
	mem,
	sync::{Arc, Weak},
};

/// A template that shells can be primed for.
pub trait Origin: Debug + Send + Sync {
	/// Gives `shell` all that it needs, and waits until it is primed.
	///
	/// # Errors
	/// [`ShellFailure`]; the shell is of no more use.
	fn prime(&self, shell: &mut Shell) -> Result<(), ShellFailure>;
}

#[derive(Debug, Default)]
pub(super) struct Primed {
	place: Place,
	/// Who was asked for last.
	last: Option<Weak<dyn Origin>>,
}

#[derive(Debug, Default)]
enum Place {
	#[default]
	Free,
	Wanted(Weak<dyn Origin>),
	/// A maker is at it.
	Making(Weak<dyn Origin>),
	There(Weak<dyn Origin>, Shell),
}

impl Primed {
	/// A clone of `origin` is asked for: the shell primed for it, if any, and one that has to make room for it.
	pub(super) fn take(&mut self, origin: &Weak<dyn Origin>) -> (Option<Shell>, Option<Shell>) {
		let again = self.last.replace(origin.clone()).is_some_and(|last| last.ptr_eq(origin));
		let found = match mem::take(&mut self.place) {
			Place::There(of, shell) if of.ptr_eq(origin) => (Some(shell), None),
			Place::There(_, shell) if again => (None, Some(shell)),
			// Whose turn it is shows when the next clone is asked for.
			place @ (Place::Making(_) | Place::There(..)) => {
				self.place = place;
				return (None, None);
			}
			Place::Free | Place::Wanted(_) => (None, None),
		};
		self.place = Place::Wanted(origin.clone());
		found
	}

	/// `origin` was made just now, to be asked for: the place is its own, and who has it gives up its shell. While a
	/// maker is at another's it is as if `origin` had been asked for once.
	pub(super) fn offer(&mut self, origin: Weak<dyn Origin>) -> Option<Shell> {
		self.last = Some(origin.clone());
		if let Place::Making(_) = self.place {
			return None;
		}
		let before = self.clear();
		self.place = Place::Wanted(origin);
		before
	}

	pub(super) fn is_wanted(&self) -> bool {
		matches!(self.place, Place::Wanted(_))
	}

	/// What the caller is to prime a shell for, and then tell by [`Primed::put`].
	pub(super) fn begin(&mut self) -> Option<Arc<dyn Origin>> {
		let Place::Wanted(origin) = &self.place else { return None };
		let origin = origin.clone();
		let there = origin.upgrade();
		self.place = if there.is_some() { Place::Making(origin) } else { Place::Free };
		there
	}

	/// The shell, or none if it could not be primed: then nobody tries again before the next claim. It comes back if it
	/// is not wanted any more.
	pub(super) fn put(&mut self, origin: &Arc<dyn Origin>, shell: Option<Shell>) -> Option<Shell> {
		match mem::take(&mut self.place) {
			Place::Making(of) if is(&of, origin) => {
				self.place = shell.map_or(Place::Free, |shell| Place::There(of, shell));
				None
			}
			place => {
				self.place = place;
				shell
			}
		}
	}

	/// `origin` is no more, or has no more clones: gives the shell with its memory.
	pub(super) fn forget(&mut self, origin: &Arc<dyn Origin>) -> Option<Shell> {
		let of = match &self.place {
			Place::Free => return None,
			Place::Wanted(of) | Place::Making(of) | Place::There(of, _) => of,
		};
		if is(of, origin) { self.clear() } else { None }
	}

	/// Gives the shell, whosever it is.
	pub(super) fn clear(&mut self) -> Option<Shell> {
		match mem::take(&mut self.place) {
			Place::There(_, shell) => Some(shell),
			_ => None,
		}
	}

	/// Gives the shell if it has ended, and wants another.
	pub(super) fn sweep(&mut self) -> Option<Shell> {
		let (place, ended) = match mem::take(&mut self.place) {
			Place::There(origin, mut shell) => {
				if shell.lives() {
					(Place::There(origin, shell), None)
				} else {
					(Place::Wanted(origin), Some(shell))
				}
			}
			other => (other, None),
		};
		self.place = place;
		ended
	}

	pub(super) fn shell(&self) -> Option<&Shell> {
		if let Place::There(_, shell) = &self.place { Some(shell) } else { None }
	}
}

fn is(of: &Weak<dyn Origin>, origin: &Arc<dyn Origin>) -> bool {
	of.ptr_eq(&Arc::downgrade(origin))
}

#[cfg(test)]
mod tests {
	use super::*;

	/// Nobody is primed for it here.
	#[derive(Debug)]
	struct Template;

	impl Origin for Template {
		fn prime(&self, _: &mut Shell) -> Result<(), ShellFailure> {
			Err(ShellFailure::Unexpected)
		}
	}

	fn ask(primed: &mut Primed, origin: &Arc<dyn Origin>) {
		assert!(matches!(primed.take(&Arc::downgrade(origin)), (None, None)));
	}

	#[test]
	fn a_shell_is_wanted_from_a_claim_on_until_a_maker_is_at_it_and_again_after_the_next_claim_if_it_failed() {
		let (mut primed, one): (Primed, Arc<dyn Origin>) = (Primed::default(), Arc::new(Template));
		assert!(!primed.is_wanted());
		ask(&mut primed, &one);
		assert!(primed.is_wanted());
		let making = primed.begin().unwrap();
		assert!(Arc::ptr_eq(&making, &one) && !primed.is_wanted() && primed.begin().is_none());
		// Another's claim takes nothing from who is at it.
		let other: Arc<dyn Origin> = Arc::new(Template);
		ask(&mut primed, &other);
		assert!(!primed.is_wanted());
		assert!(primed.put(&making, None).is_none() && !primed.is_wanted());
		ask(&mut primed, &one);
		assert!(primed.is_wanted());
	}

	#[test]
	fn a_template_that_was_just_made_has_the_place_at_once_or_when_it_is_first_asked_for() {
		let (mut primed, one): (Primed, Arc<dyn Origin>) = (Primed::default(), Arc::new(Template));
		let other: Arc<dyn Origin> = Arc::new(Template);
		primed.offer(Arc::downgrade(&one));
		primed.offer(Arc::downgrade(&other));
		let making = primed.begin().unwrap();
		assert!(Arc::ptr_eq(&making, &other));
		primed.offer(Arc::downgrade(&one));
		assert!(!primed.is_wanted() && primed.put(&making, None).is_none());
		ask(&mut primed, &one);
		assert!(Arc::ptr_eq(&primed.begin().unwrap(), &one));
	}

	#[test]
	fn nothing_is_wanted_for_a_template_that_is_forgotten_or_gone() {
		let (mut primed, one): (Primed, Arc<dyn Origin>) = (Primed::default(), Arc::new(Template));
		ask(&mut primed, &one);
		let other: Arc<dyn Origin> = Arc::new(Template);
		assert!(primed.forget(&other).is_none() && primed.is_wanted());
		assert!(primed.forget(&one).is_none() && !primed.is_wanted());
		ask(&mut primed, &one);
		drop(one);
		assert!(primed.begin().is_none() && !primed.is_wanted());
	}
}
