//! The report about all experiments: what its figures show, and what they say in a few sentences, from records alone.

mod figures;
mod findings;

pub use figures::all as figures;
pub use findings::findings;

use crate::prelude::*;

/// Writes the report about `document` into `dir`: [`flashfork_measure::report::write`].
pub fn write(document: &Document, dir: &Path) -> Result {
	flashfork_measure::report::write(document, &findings(document), &figures(document)?, dir)
}
