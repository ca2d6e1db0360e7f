//! What [`flashfork_advise`] could not do, among what experiments could not.

use crate::prelude::*;
use flashfork_advise::AdviseError;

/// For `map_err`: in the same words.
pub fn failed(error: AdviseError) -> BenchError {
	match error {
		AdviseError::System { what, source } => BenchError::System { what, source },
		other => BenchError::Unable(other.to_string()),
	}
}
