//! What a run asks of its guest.

use std::{ffi::OsString, fmt, path::PathBuf, str::FromStr, time::Duration};

use flashfork_image::GuestFile;

use crate::LabError;

/// The guest of one run: its kernel, its size and what is set up before the command starts.
///
/// Build it from [`Options::default`], which is 1 GiB, one CPU, Debian's 6.1 kernel, no swap, the
/// kernel's own THP mode and two minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
	/// The kernel to boot.
	pub kernel: Kernel,
	/// Guest memory in MiB, at least 128. The root lives in it too.
	pub memory_mib: u32,
	/// Guest CPUs, 1 to 64. Under emulation they take turns on one host thread.
	pub cpus: u32,
	/// Under emulation, give each guest CPU its own host thread, so that CPUs race as real ones do. Not together with
	/// `icount` or `nested_kvm`: instructions are counted on one thread only, and nested guests hang now and then.
	pub threads: bool,
	/// More parameters for the kernel's command line, separated by spaces.
	pub kernel_parameters: String,
	/// Size of the swap disk in MiB; 0 is no swap.
	pub swap_mib: u32,
	/// Transparent huge pages: what `/sys/kernel/mm/transparent_hugepage/enabled` is set to.
	/// `None` leaves what the kernel was built with (`always` in Debian's).
	pub thp: Option<Thp>,
	/// Run on emulation with one instruction = one nanosecond of guest time (QEMU's
	/// `-icount shift=0`), so that guest clocks count instructions and repeat from run to run.
	pub icount: bool,
	/// Give the guest `/dev/kvm`: an emulated AMD CPU with SVM and the `kvm_amd` module. Always
	/// emulated; Intel's VMX is not available.
	pub nested_kvm: bool,
	/// Time for boot and command together, at most 30 days; then the guest is killed. Downloads
	/// don't count.
	pub timeout: Duration,
	/// Memory limit of the command in bytes: `memory.max` of the cgroup it runs in.
	pub memory_max: Option<u64>,
	/// User and group id the command runs with; `None` and 0 are root.
	pub user: Option<u32>,
	/// Files and directories of the host to put into the root, with the shared libraries of each
	/// ELF file among them.
	pub files: Vec<GuestFile>,
	/// Environment of the command, beside `PATH`, `HOME` and `USER`.
	pub env: Vec<(OsString, OsString)>,
}

/// The longest timeout: far beyond any use, and far from overflowing a clock.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

impl Default for Options {
	fn default() -> Self {
		Self {
			kernel: Kernel::Debian6_1,
			memory_mib: 1024,
			cpus: 1,
			threads: false,
			kernel_parameters: String::new(),
			swap_mib: 0,
			thp: None,
			icount: false,
			nested_kvm: false,
			timeout: Duration::from_secs(120),
			memory_max: None,
			user: None,
			files: Vec::new(),
			env: Vec::new(),
		}
	}
}

impl Options {
	/// Refuses what no guest can be made of, before anything is downloaded or booted.
	pub(crate) fn check(&self) -> Result<(), LabError> {
		let refuse = |message: String| Err(LabError::Options { message });
		if self.memory_mib < 128 {
			return refuse(format!("guest memory of {} MiB is too small: give at least 128", self.memory_mib));
		}
		if !(1..=64).contains(&self.cpus) {
			return refuse(format!("{} guest CPUs: give a number from 1 to 64", self.cpus));
		}
		if self.threads && (self.icount || self.nested_kvm) {
			return refuse("a host thread for each CPU goes neither with icount nor with nested KVM".to_owned());
		}
		if self.kernel_parameters.contains(|c: char| c.is_control()) {
			return refuse(format!("kernel parameters {:?}: write them on one line", self.kernel_parameters));
		}
		if self.timeout > LONGEST {
			return refuse(format!(
				"a timeout of {} s is too long: give at most {}",
				self.timeout.as_secs(),
				LONGEST.as_secs()
			));
		}
		for (name, _) in &self.env {
			let bytes = name.as_encoded_bytes();
			let shell_name = !bytes.is_empty()
				&& !bytes[0].is_ascii_digit()
				&& bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
			if !shell_name {
				return refuse(format!("environment variable name {name:?}: use letters, digits and underscores"));
			}
		}
		Ok(())
	}
}

/// Which kernel a guest boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
	/// The newest 6.1 cloud kernel the host's package sources have (`linux-image-6.1.*-cloud-amd64`).
	Debian6_1,
	/// The newest 6.12 cloud kernel the host's package sources have.
	Debian6_12,
	/// A kernel of one's own. It needs the 8250 serial console, devtmpfs, tmpfs and initramfs
	/// built in, and whatever the options ask for built in or among its modules.
	Image {
		/// The bzImage.
		image: PathBuf,
		/// Its module directory, the one that holds `kernel/` and `modules.builtin`; `None` when
		/// all is built in.
		modules: Option<PathBuf>,
	},
}

impl fmt::Display for Kernel {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		match self {
			Self::Debian6_1 => f.write_str("6.1"),
			Self::Debian6_12 => f.write_str("6.12"),
			Self::Image { image, .. } => write!(f, "{}", image.display()),
		}
	}
}

/// The text is no kernel the lab knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown kernel `{0}`: give 6.1, 6.12 or the path of a bzImage (with a `/` in it)")]
pub struct ParseKernelError(String);

impl FromStr for Kernel {
	type Err = ParseKernelError;

	/// `6.1`, `6.12`, or a path with at least one `/` (without modules).
	fn from_str(text: &str) -> Result<Self, Self::Err> {
		match text {
			"6.1" => Ok(Self::Debian6_1),
			"6.12" => Ok(Self::Debian6_12),
			_ if text.contains('/') => Ok(Self::Image { image: text.into(), modules: None }),
			_ => Err(ParseKernelError(text.to_owned())),
		}
	}
}

/// Mode of transparent huge pages (kernel: Documentation/admin-guide/mm/transhuge.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
	/// For all anonymous memory.
	Always,
	/// Where the program asks with `madvise`.
	Madvise,
	/// Not at all.
	Never,
}

impl fmt::Display for Thp {
	fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
		f.write_str(match self {
			Self::Always => "always",
			Self::Madvise => "madvise",
			Self::Never => "never",
		})
	}
}

/// The text is no THP mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown THP mode `{0}`: give always, madvise or never")]
pub struct ParseThpError(String);

impl FromStr for Thp {
	type Err = ParseThpError;

	fn from_str(text: &str) -> Result<Self, Self::Err> {
		[Self::Always, Self::Madvise, Self::Never]
			.into_iter()
			.find(|mode| mode.to_string() == text)
			.ok_or_else(|| ParseThpError(text.to_owned()))
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn kernels_are_named_by_series_or_path() {
		assert_eq!("6.1".parse(), Ok(Kernel::Debian6_1));
		assert_eq!("6.12".parse(), Ok(Kernel::Debian6_12));
		assert_eq!("./bzImage".parse(), Ok(Kernel::Image { image: "./bzImage".into(), modules: None }));
		assert!("6.18".parse::<Kernel>().is_err());
	}

	#[test]
	fn thp_modes_round_trip() {
		for mode in [Thp::Always, Thp::Madvise, Thp::Never] {
			assert_eq!(mode.to_string().parse(), Ok(mode));
		}
		assert!("inherit".parse::<Thp>().is_err());
	}

	#[test]
	fn impossible_guests_are_refused() {
		let good = Options::default();
		assert!(good.check().is_ok());
		let bad = [
			Options { memory_mib: 64, ..good.clone() },
			Options { cpus: 0, ..good.clone() },
			Options { timeout: Duration::MAX, ..good.clone() },
			Options { cpus: 65, ..good.clone() },
			Options { threads: true, icount: true, ..good.clone() },
			Options { threads: true, nested_kvm: true, ..good.clone() },
			Options { kernel_parameters: "quiet\ndebug".into(), ..good.clone() },
			Options { env: vec![("A-B".into(), "".into())], ..good.clone() },
			Options { env: vec![("1A".into(), "".into())], ..good.clone() },
			Options { env: vec![("".into(), "".into())], ..good.clone() },
		];
		for options in bad {
			assert!(matches!(options.check(), Err(LabError::Options { .. })), "{options:?}");
		}
	}
}
