//! The ways to fuzz a target.

/// A way to give each input its state.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr, strum::Display, strum::VariantArray)]
pub enum Way {
	#[strum(serialize = "fork server")]
	ForkServer,
	/// The same with the shim.
	#[strum(serialize = "fork server, shim")]
	Shim,
	/// AFL's persistent loop, each round of which is taken back.
	#[strum(serialize = "loop on rollback")]
	Rollback,
	/// AFL's persistent loop as it is.
	#[strum(serialize = "persistent loop")]
	Persistent,
}
