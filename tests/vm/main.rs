//! What a user does with virtual machines, from nothing to `hello` from a clone: the command, its daemon, shells and
//! Debian's kernel as guest, on nested KVM in the lab.

use flashfork_lab::{Collected, GuestFile, Kernel, Lab, Options, Status, cache_dir};
use std::{
	fs,
	os::unix::fs::symlink,
	path::{Path, PathBuf},
	process::Command,
	time::Duration,
};

/// Boot and everything. A machine with nothing else to do needs a few minutes.
const LIMIT: Duration = Duration::from_secs(1200);

const PROGRAMS: [&str; 7] = [
	"flashfork",
	"flashfork-cli",
	"flashfork-keeper",
	"flashfork-vmd",
	"flashfork-shell",
	"flashfork-serve",
	"libflashfork_preload.so",
];

#[test]
fn linux_guests_are_run_cloned_rolled_back_saved_and_loaded() {
	in_the_lab("journey");
}

#[test]
fn linux_guests_are_forked_while_they_run() {
	in_the_lab("forks");
}

#[test]
fn applications_on_disks_share_a_kernel_and_a_database_that_were_started_once() {
	let start = "mkdir /run/db; mkfifo /run/db/ask /run/db/answer
sh /db/serve >/dev/null 2>&1 </dev/null &
until [ -s /run/db/starts ]; do sleep 0.1; done\n";
	// Answers `get KEY` and `set KEY VALUE`, from a table that it has read once.
	let serve = "while read -r key value; do eval row_$key=$value; done </db/table
echo $$ >>/run/db/starts
while :; do
    read -r verb key value </run/db/ask
    case $verb in
    get) eval echo \\$row_$key ;;
    set) eval row_$key=$value; echo $key $value >>/db/table; echo ok ;;
    esac >/run/db/answer
done\n";
	let run = "echo get greeting >/run/db/ask; read -r row </run/db/answer; echo $(cat /app/name): $row\n";
	let dir = tempfile::tempdir().unwrap();
	let database = [("start", start), ("serve", serve), ("table", "greeting hello\n")];
	let apps = ["blog", "shop", "wiki"].map(|name| image(dir.path(), name, &[("name", name), ("run", run)]));
	in_the_lab_with("tree", &[&[image(dir.path(), "database", &database)], &apps[..]].concat());
}

#[test]
fn processes_of_a_call_have_one_limit_of_memory() {
	let dir = tempfile::tempdir().unwrap();
	let program = dir.path().join("bootstrap");
	let source = "../crates/flashfork-serve/tests/handlers/bootstrap.rs";
	let mut build = Command::new("rustc");
	build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["--edition", "2024", "-O", "-o"]);
	done(build.arg(&program).arg(source));
	in_the_lab_with("groups", &[program]);
}

/// A disk of 8 MB with these files.
fn image(dir: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
	let (root, image) = (dir.join(format!("{name}.root")), dir.join(name));
	fs::create_dir(&root).unwrap();
	files.iter().for_each(|(name, content)| fs::write(root.join(name), content).unwrap());
	done(
		Command::new(programs().join("flashfork"))
			.args(["vm", "image", "from-dir", "--size", "8M"])
			.args([&root, &image]),
	);
	image
}

fn in_the_lab(script: &str) {
	in_the_lab_with(script, &[]);
}

/// Runs a script of this directory, with files of its own.
fn in_the_lab_with(script: &str, more: &[PathBuf]) {
	let dir = tempfile::tempdir().unwrap();
	let cache = cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")).expect("HOME is set");
	let programs = programs();
	let in_guest = |host: PathBuf, guest: PathBuf| GuestFile { host, guest };
	let mut files: Vec<_> = PROGRAMS
		.iter()
		.map(|name| {
			let stripped = dir.path().join(name);
			done(Command::new("strip").arg("-o").arg(&stripped).arg(programs.join(name)));
			in_guest(stripped, Path::new("/opt/bin").join(name))
		})
		.collect();
	files.push(in_guest(agent(), "/opt/lib/flashfork/flashfork-agent".into()));
	// There is no network in the lab: the kernel is where a download would have put it.
	let lab = Lab::new(cache.clone()).unwrap();
	let kernel = Options { kernel: Kernel::Debian6_12, ..Options::default() };
	lab.run(&kernel, &["true"], &mut Collected::default()).unwrap();
	let release = fs::read_dir(cache.join("kernels")).unwrap().map(|entry| entry.unwrap().file_name());
	for release in release.filter(|release| release.to_string_lossy().starts_with("6.12.")) {
		let path = Path::new("kernels").join(release);
		files.push(in_guest(cache.join(&path), Path::new("/root/.cache/flashfork/lab").join(path)));
	}
	files.push(in_guest(disk(dir.path(), &programs.join("flashfork")), "/opt/disk".into()));
	files.extend(more.iter().map(|file| in_guest(file.clone(), Path::new("/opt").join(file.file_name().unwrap()))));
	for name in ["helpers", "functions", script] {
		files.push(in_guest(Path::new(env!("CARGO_MANIFEST_DIR")).join("vm").join(name), Path::new("/opt").join(name)));
	}

	let options = Options { memory_mib: 2048, nested_kvm: true, files, timeout: LIMIT, ..kernel };
	let mut output = Collected::default();
	let outcome = lab.run(&options, &["sh", &format!("/opt/{script}")], &mut output);
	let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
	let outcome = outcome.unwrap_or_else(|e| panic!("{e}\n{stdout}\n{stderr}"));
	assert_eq!(outcome.status, Status::Exited(0), "{stdout}\n{stderr}");
	assert_eq!(outcome.kernel_warnings, [] as [&str; 0]);
	assert!(stdout.ends_with("all done\n"), "{stdout}");
}

/// A disk that is a root: busybox, SQLite with what the loader finds for it, and a file to write over.
fn disk(dir: &Path, flashfork: &Path) -> PathBuf {
	let root = dir.join("root");
	for sub in ["bin", "etc", "dev", "proc", "sys", "run", "tmp"] {
		fs::create_dir_all(root.join(sub)).unwrap();
	}
	let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).is_file());
	fs::copy(busybox.expect("needs busybox-static"), root.join("bin/busybox")).unwrap();
	for applet in ["sh", "cat", "sync"] {
		symlink("busybox", root.join("bin").join(applet)).unwrap();
	}
	let database = "/usr/bin/sqlite3";
	let found = Command::new("ldd").arg(database).output().expect("needs sqlite3").stdout;
	let libraries = str::from_utf8(&found).unwrap().split_whitespace().filter(|word| word.starts_with('/'));
	for file in libraries.chain([database]) {
		let place = root.join(&file[1..]);
		fs::create_dir_all(place.parent().unwrap()).unwrap();
		fs::copy(file, place).unwrap();
	}
	fs::write(root.join("etc/file"), "from the image\n").unwrap();
	let image = dir.join("disk");
	done(Command::new(flashfork).args(["vm", "image", "from-dir", "--size", "32M"]).args([&root, &image]));
	image
}

/// The directory with [`PROGRAMS`], as `make build` makes them: emulated, others would take too long. The packages are
/// the same too, with which features are chosen, so that nothing is compiled twice.
fn programs() -> PathBuf {
	let exe = std::env::current_exe().unwrap();
	// target/PROFILE/deps/this
	let target = exe.ancestors().nth(3).unwrap();
	let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
	let mut build = Command::new(cargo);
	build.args(["build", "--quiet", "--release", "--locked", "--target-dir"]).arg(target);
	let packages = ["bench", "cli", "keeper", "launcher", "preload", "serve", "vmm"];
	build.args(packages.map(|name| format!("-pflashfork-{name}")));
	done(build.current_dir(env!("CARGO_MANIFEST_DIR")));
	target.join("release")
}

fn agent() -> PathBuf {
	let built = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/build-agent")).output().unwrap();
	assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
	String::from_utf8(built.stdout).unwrap().trim().into()
}

#[track_caller]
fn done(command: &mut Command) {
	let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
	assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
