//! The daemon's HTTP interface: JSON over a Unix socket. Its paths, with what goes in and comes out, are in the
//! description that `GET /v1/openapi.json` gives, and `flashfork-vmd --openapi`.
//!
//! The two that answer 101, for an [`agent`](crate::agent) and a console, ask for `Connection: Upgrade` and `Upgrade:
//! flashfork`. Who has sent the last to an agent has two seconds for its answers; then the connection ends. Whatever
//! fails answers with an [`Error`] under its [`ErrorCode::http_status`].

use std::path::PathBuf;

pub use flashfork_warm::{LONGEST_NAME, NAME_RULE, is_name};

use serde::{Deserialize, Serialize};

use crate::{
	shape::Shape,
	shell::{ClaimTimes, Pause},
};

/// Version of this interface: the first part of every path.
pub const VERSION: u32 = 1;

/// The value of the `Upgrade` header.
pub const UPGRADE: &str = "flashfork";

/// Greatest length of a request's body in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// Greatest number of clones one request may ask for.
pub const MAX_CLONES_AT_ONCE: u32 = 1000;

/// Ended clones that a daemon remembers if nothing else is said.
pub const MAX_ENDED: usize = 1000;

/// Greatest length of a disk's serial number in bytes.
pub const MAX_SERIAL: usize = 20;

/// What a VM may write to its disk if nothing else is said, in MiB.
pub const DEFAULT_DISK_LIMIT_MIB: u64 = 1024;

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Daemon {
	/// Version of flashfork.
	pub flashfork: String,
	/// Version of the daemon's interface.
	pub api: u32,
	/// Its process id.
	pub pid: u32,
	/// The inode of its namespace of processes (`namespaces(7)`): there are all process ids that it tells of. 0 where
	/// it isn't known.
	#[serde(default)]
	pub pid_namespace: u64,
}

/// Boots a guest and makes a template of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateTemplate {
	/// 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter, digit or `_`; not `load`.
	pub name: String,
	/// The machine.
	pub shape: Shape,
	/// Kernel image; Debian's cloud kernel by default.
	#[serde(default)]
	#[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
	pub kernel: Option<PathBuf>,
	/// Initramfs; the one with the agent by default.
	#[serde(default)]
	#[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
	pub initramfs: Option<PathBuf>,
	/// Instead of a kernel: real-mode code of at most a page that gives the fork signal, for tests and
	/// measurements.
	#[serde(default)]
	pub tiny: Option<Vec<u8>>,
	/// Added to the kernel's command line.
	#[serde(default)]
	pub append: String,
	/// The disk's image, which must not change from now on; needed if the shape has a disk.
	#[serde(default)]
	#[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
	pub disk: Option<PathBuf>,
	/// MiB that the guest may write to its disk, and each clone over that. It is memory of the host; beyond it the
	/// guest gets I/O errors.
	#[serde(default = "default_disk_limit_mib")]
	pub disk_limit_mib: u64,
	/// The disk's serial number, up to 20 printable ASCII characters; `flashfork` by default.
	#[serde(default)]
	pub disk_serial: Option<String>,
	/// Whether the disk is read-only. The default guest then keeps what is written to its root in memory.
	#[serde(default)]
	pub disk_read_only: bool,
	/// What makes the guest ready.
	#[serde(default)]
	pub ready: Ready,
	/// The template is retired after this many clones, which share its address-space layout. A rollback counts as a
	/// clone; each load of a saved template counts anew from what was saved.
	#[serde(default)]
	pub max_clones: Option<u64>,
	/// Seconds until the guest must be ready.
	#[serde(default = "default_timeout_s")]
	pub timeout_s: u32,
}

/// Time a guest has to get ready, in seconds, if nothing else is said.
pub const DEFAULT_TIMEOUT_S: u32 = 120;

fn default_disk_limit_mib() -> u64 {
	DEFAULT_DISK_LIMIT_MIB
}

fn default_timeout_s() -> u32 {
	DEFAULT_TIMEOUT_S
}

/// When a template is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ready {
	/// When the agent is up.
	#[default]
	Agent,
	/// When the guest signals it, through I/O ports.
	Signal,
	/// When this command, run by the agent, has ended with status 0.
	Command(Vec<String>),
}

/// Loads a template from a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadTemplate {
	/// 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter, digit or `_`; not `load`.
	pub name: String,
	/// Absolute path of the directory.
	#[cfg_attr(feature = "schema", schema(value_type = String))]
	pub directory: PathBuf,
}

/// Saves a template to a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SaveTemplate {
	/// Absolute path of a directory that does not exist yet or is empty.
	#[cfg_attr(feature = "schema", schema(value_type = String))]
	pub directory: PathBuf,
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Template {
	/// Its name.
	pub name: String,
	/// Its shape.
	pub shape: Shape,
	/// When it was made, in seconds since 1970-01-01 UTC.
	pub created_s: u64,
	/// When it was made here or loaded, in nanoseconds on the host's monotonic clock. Names are used again: what is
	/// younger than something is not what that came from.
	pub made_ns: u64,
	/// Clones, forks and rollbacks so far: what counts for `max_clones`.
	pub clones_made: u64,
	/// Clones alive.
	pub clones_alive: u64,
	/// After how many clones it is retired.
	pub max_clones: Option<u64>,
	/// The clone forked to make it, if it wasn't booted.
	pub forked_from: Option<String>,
	/// Bytes of memory that guest memory and what the guest wrote to its disk take, shared by all clones.
	pub resident_bytes: u64,
	/// How many of these other templates share, whose clones were forked while they ran.
	pub shared_bytes: u64,
	/// Nanoseconds from power-on until it was ready; none for a loaded one.
	pub boot_ns: Option<u64>,
}

/// Makes clones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateClones {
	/// How many, 1 to 1000.
	#[serde(default = "one")]
	pub count: u32,
	/// The clone's name, if it is one; template, dash and number otherwise.
	#[serde(default)]
	pub name: Option<String>,
	/// What the clones are for: text that their guests find in the reply to the fork signal, at most
	/// 3960 bytes, less what is said of its disks.
	#[serde(default)]
	pub job: String,
	/// Whether to answer only when the guest is ready. Without it the answer comes with the first exit of the guest,
	/// and a clone's state must be asked for.
	#[serde(default = "yes")]
	pub wait: bool,
	/// How often each may fork itself, by the fork signal in its guest; what comes of that has the same number left.
	#[serde(default)]
	pub forks: u32,
	/// Disks for the first empty slots of the template, at most as many as it has.
	#[serde(default)]
	pub disks: Vec<AttachDisk>,
}

/// A disk that clones get and their template has not. What a clone writes to it is its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AttachDisk {
	/// Its image, which must not change from now on.
	#[cfg_attr(feature = "schema", schema(value_type = String))]
	pub image: PathBuf,
	/// Whether guests may only read it.
	#[serde(default)]
	pub read_only: bool,
	/// An absolute path in the guest, where its agent mounts the disk's file system before the clone is ready.
	#[serde(default)]
	pub mount: Option<String>,
	/// MiB that each clone may write to it.
	#[serde(default = "default_disk_limit_mib")]
	pub limit_mib: u64,
}

/// Forks a clone while it runs: what it is at one moment becomes a template, and it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ForkClone {
	/// How many clones are made of it, up to 1000; none only if the template has a name.
	#[serde(default = "one")]
	pub count: u32,
	/// The new clone's name, if it is one; otherwise clones are called as in [`CreateClones`], after the template that
	/// they come from.
	#[serde(default)]
	pub name: Option<String>,
	/// As in [`CreateClones`].
	#[serde(default)]
	pub job: String,
	/// As in [`CreateClones`]. Clones that were forked `now` are ready at once, and not waited for.
	#[serde(default = "yes")]
	pub wait: bool,
	/// As in [`CreateClones`]; the clone that is forked doesn't get them.
	#[serde(default)]
	pub disks: Vec<AttachDisk>,
	/// A name for the template, which then stays. One without a name goes with the last of its clones.
	#[serde(default)]
	pub template: Option<String>,
	/// Not to ask the guest's agent, which has everything else in the guest stand still until each clone is one of its
	/// own, but to fork the guest wherever it is: for guests without an agent, which find a new generation id.
	#[serde(default)]
	pub now: bool,
}

/// What came of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Forked {
	/// How long the forked clone stood still.
	pub pause: Pause,
	/// The template, if it has a name.
	pub template: Option<Template>,
	/// The clones.
	pub clones: Vec<Clone>,
}

fn one() -> u32 {
	1
}

fn yes() -> bool {
	true
}

/// A clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Clone {
	/// Its name.
	pub name: String,
	/// Its template's name; if that has none, the name of the template that its ancestors were cloned from.
	pub template: String,
	/// The clone forked to make it, if its template has no name.
	pub forked_from: Option<String>,
	/// When it was made, as of a [`Template`].
	pub made_ns: u64,
	/// Its generation id, 32 hexadecimal digits.
	pub generation: String,
	/// Its state.
	pub state: CloneState,
	/// Process id of its shell.
	pub pid: u32,
	/// Its vsock context id.
	pub cid: u32,
	/// The steps of its claim, in nanoseconds.
	pub claim: ClaimTimes,
	/// Nanoseconds from the request's last byte until the guest's first exit was seen.
	pub first_exit_ns: u64,
	/// The same until the guest was ready.
	pub ready_ns: Option<u64>,
	/// What went wrong while it ran on, such as a full disk: one line.
	pub trouble: Option<String>,
	/// How it ended, if it has: one line.
	pub ended: Option<String>,
	/// Bytes of memory that it adds to its template's: pages of memory and disk that it wrote, its monitor's own, page
	/// tables, and what KVM holds for it; swapped out or not. Counted by its control group where it has one; elsewhere
	/// with 2 MB pages all that it touched, and KVM's share estimated from its shape, because the host charges that to
	/// nobody. None once it has ended.
	pub memory_bytes: Option<u64>,
}

/// Where a clone is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CloneState {
	/// It runs but has not got its entropy, clock and hooks yet.
	Starting,
	/// It may be used.
	Ready,
	/// Its guest has ended. It is shown until it is removed, or as many others as the daemon remembers have ended
	/// since.
	Ended,
}

/// What the daemon has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Stats {
	/// Templates.
	pub templates: u64,
	/// Clones alive.
	pub clones: u64,
	/// Clones made since the daemon started.
	pub clones_made: u64,
	/// Pools of shells.
	pub pools: Vec<PoolStats>,
	/// Bytes of memory that templates take; clones share them.
	pub template_bytes: u64,
	/// Bytes that all clones together add to that, see [`Clone::memory_bytes`].
	pub clone_bytes: u64,
	/// Bytes that the shells that wait take.
	pub shell_bytes: u64,
}

/// A pool of shells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolStats {
	/// Their shape.
	pub shape: Shape,
	/// Shells that wait.
	pub ready: u32,
	/// Shells that wait beside them, primed for the template asked for last.
	pub primed: u32,
	/// Shells being prepared.
	pub preparing: u32,
	/// Claims that found none and had to wait.
	pub misses: u64,
}

/// What the host's KVM can do, found out by trying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Host {
	/// The verdict.
	pub kvm: HostKvm,
	/// How it was found, or what is missing, in one line.
	pub detail: String,
	/// What keeps a clone whose monitor was taken over from using more than its share, in one line.
	pub limits: String,
}

/// Kinds of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HostKvm {
	/// Linux guests boot.
	Linux,
	/// A guest of a few bytes runs. Linux was not tried, since its kernel or something else it needs is not on this
	/// host yet, or was not up in time.
	Untried,
	/// A guest of a few bytes runs, Linux does not boot: Linux guests need the lab.
	Tiny,
	/// No guest runs: all guests need the lab.
	None,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[error("{message}")]
pub struct Error {
	/// For programs.
	pub code: ErrorCode,
	/// What, why, and what to do, in one line.
	pub message: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
	/// The request makes no sense.
	Invalid,
	/// No such path, template or clone.
	NotFound,
	/// The name is taken.
	Exists,
	/// The template has clones, or was retired, or the clone is not in the state for it.
	Conflict,
	/// Too little memory, disk or descriptors.
	Exhausted,
	/// The host lacks KVM or a right.
	Unsupported,
	/// The guest did not do its part.
	Guest,
	/// KVM met something in the guest that it can't run.
	Unrunnable,
	/// Anything else.
	Internal,
}

impl ErrorCode {
	/// The HTTP status of an answer with it.
	#[must_use]
	pub fn http_status(self) -> u16 {
		match self {
			Self::Invalid => 400,
			Self::NotFound => 404,
			Self::Exists | Self::Conflict => 409,
			Self::Exhausted => 507,
			Self::Unsupported => 501,
			Self::Guest | Self::Unrunnable => 502,
			Self::Internal => 500,
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_left_out_has_its_default() {
		let clones: CreateClones = serde_json::from_str("{}").unwrap();
		assert_eq!(
			clones,
			CreateClones { count: 1, name: None, job: String::new(), wait: true, forks: 0, disks: Vec::new() }
		);
		let json = r#"{"name":"t","shape":{"memory_mib":256,"vcpus":1,"pages":"small","disk":false}}"#;
		let template: CreateTemplate = serde_json::from_str(json).unwrap();
		assert_eq!((template.ready, template.timeout_s), (Ready::Agent, DEFAULT_TIMEOUT_S));
		assert_eq!((template.disk_limit_mib, template.disk_read_only), (DEFAULT_DISK_LIMIT_MIB, false));
	}

	#[test]
	fn misspelt_fields_are_refused() {
		assert!(serde_json::from_str::<CreateClones>(r#"{"cuont":2}"#).unwrap_err().to_string().contains("cuont"));
	}
}
