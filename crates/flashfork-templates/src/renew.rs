//! Templates whose program would be another one now, and how they are made anew.

use crate::error::Error;
use crate::link::{Found, Link};
use crate::name::Name;
use crate::template::Template;
use crate::warm::Warm;
use crate::warming::Warming;
use flashfork_warm::{Step, Why};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::process::Stdio;
use std::time::Duration;

/// How often it is looked whether somebody else has made it anew.
const TURN: Duration = Duration::from_millis(25);

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
            Why::Listing => write!(f, "modules in {what}{others} came or went since {template} was warmed"),
            Why::Variable => write!(f, "{what}{others} differ here from what {template} was warmed with"),
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
    /// Of several who do so one warms it. If that fails the old one stays. `errors` is where the program writes errors
    /// meanwhile; its output is nobody's.
    pub fn renew(&self, errors: Option<BorrowedFd<'_>>) -> Result<Renewal<'a>, Error> {
        let (names, name) = (self.names, &self.name);
        let kept = Link::to(names, name)?.recipe(name)?;
        if !kept.lock(name)? {
            return Ok(Renewal::Others);
        }
        // It may have been replaced before the lock was had.
        if !Link::to(names, name)?.recipe(name)?.is(&kept) || self.facts()?.changed == 0 {
            return Ok(Renewal::Done);
        }
        let Some(recipe) = kept.recipe.clone() else { return Err(Error::NoRecipe(name.clone())) };
        let errors = errors.map(|errors| errors.try_clone_to_owned().map_err(Error::Start)).transpose()?;
        let warm = Warm::anew(names, name.clone(), recipe, kept);
        let warm = warm.output(Stdio::null(), errors.map_or_else(Stdio::null, Stdio::from));
        warm.start().map(Renewal::Warming).map_err(|e| Error::anew(name, e))
    }

    /// The same to its end, whoever does it.
    pub fn renewed(&self, errors: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        loop {
            match self.renew(errors)? {
                Renewal::Done => return Ok(()),
                Renewal::Others => std::thread::sleep(TURN),
                Renewal::Warming(warming) => return warming.wait().map(drop),
            }
        }
    }

    /// Whether who got no clone for this reason asks again: the template was replaced at that moment, and has made
    /// none. `asked`: the request was sent.
    #[must_use]
    pub fn is_replaced(&self, error: &Error, asked: bool) -> bool {
        let went = match error {
            Error::NoClone { step: Step::Retired, .. } => true,
            Error::Gone(_) => !asked,
            _ => false,
        };
        went && Link::find(self.names, &self.name).is_ok_and(|found| matches!(found, Found::Alive(_)))
    }

    /// How often to ask after [`Renewal::Others`].
    pub const TURN: Duration = TURN;
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
    }
}
