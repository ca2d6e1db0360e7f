//! Templates whose program would be another one now, and how they are made anew.

use crate::{
	error::Error,
	link::{Found, Link},
	name::Name,
	program,
	recipe::Recipe,
	start::Strings,
	template::Template,
	warm::Warm,
	warming::Warming,
};
use flashfork_warm::{Step, Why, variables::ALL};
use std::{
	ffi::OsStr,
	fmt,
	os::{fd::BorrowedFd, unix::fs::MetadataExt},
	process::Stdio,
	time::Duration,
};

/// How often it is looked whether somebody else has made it anew.
const TURN: Duration = Duration::from_millis(25);

/// How many turns clones and callers have to let go of ports of the old one.
const TURNS_TO_LET_GO: u32 = 10;

/// Why a template makes no clones: its program would not be the same, if it were started now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
	/// The template.
	pub template: Name,
	/// What has changed.
	pub why: Why,
	/// A file, a directory or a variable, or the end of a long name.
	pub what: String,
	/// How many have changed.
	pub count: u64,
	/// Whether it was warmed to be made anew by its callers.
	pub renews: bool,
}

impl Stale {
	pub(crate) fn new(template: &Name, why: Why, renews: bool, count: u64, name: &[u8]) -> Stale {
		let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
		let what = String::from_utf8_lossy(&name[..end]).replace(char::is_control, "?");
		Stale { template: template.clone(), why, what, count, renews }
	}
}

impl fmt::Display for Stale {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		let Stale { template, why, what, count, .. } = self;
		let others = match count {
			0 | 1 => String::new(),
			2 => " and another".into(),
			_ => format!(" and {} others", count - 1),
		};
		match why {
			Why::File => write!(f, "{what}{others} changed since {template} was warmed"),
			Why::New => {
				write!(f, "{what}{others} appeared since {template} was warmed, which had looked there in vain")
			}
			Why::Listing => write!(f, "files in {what}{others} came or went since {template} was warmed"),
			Why::Variable => write!(f, "{what}{others} differ here from what {template} was warmed with"),
			Why::LetGo => write!(
				f,
				"{template} has let go of its ports to be warmed anew, which is not done, and makes no clones any more"
			),
		}
	}
}

/// What is to be done about a template that is to be made anew.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Renewal<'a> {
	/// Nothing: it is not stale, or somebody else has made it anew.
	Done,
	/// Somebody else makes it anew; ask again after a moment.
	Others,
	/// To bring it to its ready point. It comes in the old one's place, whose clones run on.
	Warming(Warming<'a>),
}

impl<'a> Template<'a> {
	/// Begins to make the template anew, if it is stale: by its own command line, directory, environment and options.
	/// Of several who do so one warms it. If that fails the old one stays; but one with threads that listens on ports
	/// of TCP has let go of them for the new one, and makes no clones any more. `errors` is where the program writes
	/// errors meanwhile; its output is nobody's.
	pub fn renew(&self, errors: Option<BorrowedFd<'_>>) -> Result<Renewal<'a>, Error> {
		self.renew_for(errors, None)
	}

	/// The same for a caller with these variables, if they count.
	pub(crate) fn renew_for(
		&self,
		errors: Option<BorrowedFd<'_>>,
		caller: Option<&Strings>,
	) -> Result<Renewal<'a>, Error> {
		match self.begin(errors, caller) {
			// Somebody else was faster.
			Err(e) if self.is_replaced(&e, None) => Ok(Renewal::Done),
			begun => begun,
		}
	}

	fn begin(&self, errors: Option<BorrowedFd<'_>>, caller: Option<&Strings>) -> Result<Renewal<'a>, Error> {
		let (names, name) = (self.names, &self.name);
		let kept = Link::to(names, name)?.recipe(name)?;
		if !kept.lock(name)? {
			return Ok(Renewal::Others);
		}
		// It may have been replaced before the lock was had.
		let old = Link::to(names, name)?;
		if !old.recipe(name)?.is(&kept) {
			return Ok(Renewal::Done);
		}
		let Some(mut recipe) = kept.recipe.clone() else { return Err(Error::NoRecipe(name.clone())) };
		let others = recipe.renews && caller.is_some_and(|caller| take_variables(&mut recipe, caller));
		if !others && self.facts()?.changed == 0 {
			return Ok(Renewal::Done);
		}
		let errors = errors.map(|errors| errors.try_clone_to_owned().map_err(Error::Start)).transpose()?;
		let warm = Warm::anew(names, name.clone(), recipe, kept);
		let warm = warm.output(Stdio::null(), errors.map_or_else(Stdio::null, Stdio::from));
		let checked = warm.check().map_err(|e| Error::anew(name, e, None))?;
		let taken = let_go(&old, name)?;
		match checked.start() {
			Ok(warming) => Ok(Renewal::Warming(warming.after(taken.map(|_| old)))),
			Err(e) => Err(Error::anew(name, e, taken)),
		}
	}

	/// Whether who got no clone for this reason asks again: the template was replaced at that moment, and has made
	/// none. `asked`: the process of the template that has got the request
	/// ([`Asked::template`](crate::Asked::template)), if it was sent.
	#[must_use]
	pub fn is_replaced(&self, error: &Error, asked: Option<Option<i32>>) -> bool {
		let found = || match Link::find(self.names, &self.name) {
			Ok(Found::Alive(link)) => Some(link.template),
			_ => None,
		};
		match (error, asked) {
			(Error::NoClone { step: Step::Retired, .. }, Some(old)) => found().is_some_and(|new| new != old),
			(Error::Gone(_), None) => found().is_some(),
			_ => false,
		}
	}

	/// How often to ask after [`Renewal::Others`].
	pub const TURN: Duration = TURN;
}

/// As [`Link::let_go`], and waits a moment for others to let go, too: clones that end, and callers who have asked for
/// their own port.
fn let_go(old: &Link, name: &Name) -> Result<Option<Vec<u16>>, Error> {
	let mut taken = old.let_go(name)?;
	for _ in 0..TURNS_TO_LET_GO {
		if taken.as_ref().is_none_or(Vec::is_empty) {
			break;
		}
		std::thread::sleep(TURN);
		taken = old.let_go(name)?;
	}
	Ok(taken)
}

/// Has a program warmed with a caller's values of what is read at a program's start; false if they are the same.
fn take_variables(recipe: &mut Recipe, caller: &Strings) -> bool {
	let program = recipe.command[0].clone();
	let before = recipe.environment.clone();
	let mut others = false;
	let mut take = |name: &str, value: Option<&OsStr>| {
		match value {
			Some(value) => recipe.environment.set(name, value),
			None => recipe.environment.remove(name),
		}
		others = true;
	};
	let given = |value: Option<&OsStr>| value.is_some_and(|value| !value.is_empty());
	for name in ALL.into_iter().flatten().filter_map(|name| name.to_str().ok()) {
		let (was, is) = (before.variable(name), caller.variable(name));
		if was != is && (given(was) || given(is)) {
			take(name, is);
		}
	}
	let found = |path: Option<&OsStr>| {
		let about = program::find(&program, path.unwrap_or_default()).ok()?.metadata().ok()?;
		Some((about.dev(), about.ino()))
	};
	let (was, is) = (before.variable("PATH"), caller.variable("PATH"));
	if was != is && !program.as_encoded_bytes().contains(&b'/') && found(was) != found(is) {
		take("PATH", is);
	}
	others
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_has_changed_is_told_in_one_line() {
		let template: Name = "t".parse().unwrap();
		let told = |why, count, name: &[u8]| Stale::new(&template, why, false, count, name).to_string();
		assert_eq!(told(Why::File, 1, b"/a\nb\0\0"), "/a?b changed since t was warmed");
		assert_eq!(told(Why::File, 3, b"/a"), "/a and 2 others changed since t was warmed");
		assert!(told(Why::New, 2, b"/a").starts_with("/a and another appeared since t was warmed"));
		assert!(told(Why::Variable, 1, b"PYTHONPATH").starts_with("PYTHONPATH differ"));
		assert!(told(Why::LetGo, 1, b"").starts_with("t has let go of its ports"));
	}
}
