//! Users without any right of their own, and systems that don't let them make namespaces.

use crate::{
	place::{Place, assert_says, both, copy, flashfork, good, kill, line, state, stderr, stdout, until},
	rights,
};
use std::{
	fs,
	os::unix::{
		fs::{PermissionsExt, chown},
		process::CommandExt,
	},
	path::Path,
	process::{Command, Output, Stdio},
};

const NOBODY: u32 = 65534;

const PROGRAM: &str = r#"
int main(int argc, char **argv) {
	another();
	flashfork_ready(&argc, &argv);
	DIR *d = opendir("/proc/self/task"); struct dirent *e;
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.') continue;
		char path[300], text[256]; snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		FILE *f = fopen(path, "r");
		while (fgets(text, sizeof text, f)) if (!strncmp(text, "Cap", 3) && strtoull(text + 7, 0, 16)) fputs(text, stdout);
		fclose(f);
	}
	printf("%d %d\n", getuid(), getgid());
}
"#;

/// Somewhere that another user can reach, with the command's files.
struct Other {
	place: Place,
	bin: std::path::PathBuf,
}

impl Other {
	/// `None` where tests don't run as root: then the others are those of an ordinary user.
	fn new() -> Option<Other> {
		// SAFETY: asks for a number.
		if unsafe { libc::geteuid() } != 0 {
			return None;
		}
		let place = Place::new();
		fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
		let bin = place.at("bin");
		fs::create_dir(&bin).unwrap();
		let built = Path::new(flashfork());
		for name in ["flashfork", "flashfork-cli", "flashfork-keeper", "libflashfork_preload.so"] {
			copy(&built.with_file_name(name), &bin.join(name));
		}
		place.program("program", PROGRAM);
		let home = place.at("run");
		fs::create_dir(&home).unwrap();
		chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
		Some(Other { place, bin })
	}

	fn command(&self, arguments: &[&str]) -> Command {
		let mut command = Command::new(self.bin.join("flashfork"));
		command.args(arguments).env("XDG_RUNTIME_DIR", self.place.at("run")).current_dir("/");
		command.stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
		command
	}

	fn run(&self, arguments: &[&str]) -> Output {
		self.command(arguments).output().unwrap()
	}

	fn warm(&self) -> Output {
		self.warm_of("program").output().unwrap()
	}

	/// A template `t` of another program that is here.
	fn warm_of(&self, name: &str) -> Command {
		let program = self.place.at(name);
		self.command(&["warm", "--threads", "--ready", "call", "t", "--", program.to_str().unwrap()])
	}
}

impl Drop for Other {
	fn drop(&mut self) {
		self.run(&["rm", "t"]);
	}
}

#[test]
fn an_ordinary_users_clones_have_no_capabilities() {
	let Some(other) = Other::new() else { return };
	good(other.warm());
	for _ in 0..2 {
		let clone = other.run(&["clone", "t"]);
		assert_eq!(both(&clone), (format!("{NOBODY} {NOBODY}\n").as_str(), ""));
	}
}

/// Root's clones have a copy of it.
#[test]
fn a_deleted_file_that_an_ordinary_user_can_not_read_is_refused() {
	let Some(other) = Other::new() else { return };
	let source = r#"
int main(int argc, char **argv) {
	char n[] = "/tmp/ff-XXXXXX"; int fd = mkstemp(n), written = fd < 0 ? -1 : open(n, O_WRONLY);
	if (written < 0 || fchmod(fd, 0200) || unlink(n) || write(fd, "text", 4) != 4 || close(fd)) {
		perror(n);
		return 1;
	}
	another();
	flashfork_ready(&argc, &argv);
}
"#;
	other.place.program("unreadable", source);
	let refused = other.warm_of("unreadable").output().unwrap();
	assert_says(line(&refused), "a deleted file that clones can't have a copy of");
}

/// A user may have 64 MB in pipes (`pipe-user-pages-soft`).
#[test]
fn no_clone_has_pipes_with_less_room_than_the_programs() {
	let Some(other) = Other::new() else { return };
	let source = r#"
int main(void) {
	int p[2]; for (int i = 0; i < 40; i++) { pipe(p); fcntl(*p, 1031, 1 << 20); }
	int had = fcntl(*p, 1032);
	flashfork_ready(0, 0);
	return fcntl(*p, 1032) < had;
}
"#;
	other.place.program("piped", source);
	other.warm_of("piped").status().unwrap();
	let clone = other.run(&["clone", "t"]);
	assert!(clone.status.success() || line(&clone).contains("No buffer space"), "{clone:?}");
}

/// They are tried once, in a clone whose threads have the numbers that the template's had.
#[test]
fn functions_for_clones_of_an_ordinary_user_run() {
	let Some(other) = Other::new() else { return };
	let source = r#"
static int ran;
static int renew(void *x) { ran++; return 0; }
int main(int argc, char **argv) {
	another();
	flashfork_on_clone(renew, 0);
	flashfork_ready(&argc, &argv);
	printf("%d\n", ran);
}
"#;
	other.place.program("hooked", source);
	good(other.warm_of("hooked").output().unwrap());
	assert_eq!(stdout(&other.run(&["clone", "t"])), "1\n");
}

#[test]
fn where_namespaces_are_used_up_one_line_says_so() {
	let Some(other) = Other::new() else { return };
	let program = other.place.at("program");
	// The template has one of processes, its trial another, and each clone one.
	for (kind, most, reason) in [
		("user", 0, "no user namespace is left: raise sysctl user.max_user_namespaces"),
		("mnt", 0, "no namespace is left: raise sysctl user.max_pid_namespaces and user.max_mnt_namespaces"),
		("pid", 0, "no namespace is left"),
		("pid", 1, "no namespace is left"),
	] {
		// In a user namespace whose limit is the test's to set, and then without any right.
		let script = format!(
			"echo {most} > /proc/sys/user/max_{kind}_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all {} warm --threads --ready call t -- {}",
			other.bin.join("flashfork").display(),
			program.display()
		);
		let mut command = Command::new("unshare");
		let user = ["--user", "--map-user=65534", "--map-group=65534", "--keep-caps"];
		command.args(user).args(["sh", "-c", &script]).uid(NOBODY).gid(NOBODY);
		command.env("XDG_RUNTIME_DIR", other.place.at("run")).current_dir("/");
		let refused = command.output().unwrap();
		assert!(line(&refused).contains(reason), "{kind} {most}: {}", line(&refused));
		assert_says(line(&refused), "templates of programs with one thread");
	}
}

#[test]
fn nothing_of_an_ordinary_users_template_is_left() {
	let Some(other) = Other::new() else { return };
	assert!(other.warm().status.success());
	let listed = other.run(&["ls", "--json"]);
	let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
	let keeper = i32::try_from(listed[0]["pid"].as_i64().unwrap()).unwrap();
	let init = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
	let init: i32 = init.split_whitespace().next().unwrap().parse().unwrap();
	kill(keeper, libc::SIGKILL);
	until("its init is gone", || state(init).is_none());
}

/// Who takes it over could use whatever runs in its memory.
#[test]
fn nothing_in_the_memory_of_an_ordinary_users_program_has_capabilities() {
	let Some(other) = Other::new() else { return };
	let program = other.place.program(
		"waits",
		"int main(int argc, char **argv) { while (access(argv[1], F_OK)) usleep(1000); flashfork_ready(&argc, &argv); }",
	);
	let go = other.place.at("go");
	let mut warm = other.warm_of("waits").arg(&go).stdout(Stdio::null()).spawn().unwrap();
	until("it runs", || rights::running(Path::new(&program)).is_some());
	let all = rights::of_one_memory(rights::running(Path::new(&program)).unwrap());
	let none = |rights: &rights::Rights| rights.capabilities.iter().all(|set| set.bytes().all(|digit| digit == b'0'));
	assert!(all.iter().all(none), "{all:?}");
	fs::write(&go, "").unwrap();
	assert!(warm.wait().unwrap().success());
	assert_eq!(stderr(&other.run(&["clone", "t"])), "");
}

/// It has forbidden that others look at it, and its clones forbid it, too.
#[test]
fn a_program_that_may_not_be_looked_at_is_cloned() {
	let Some(other) = Other::new() else { return };
	other.place.program(
		"hides",
		"int main(int argc, char **argv) {
    prctl(PR_SET_DUMPABLE, 0); another(); int p[2]; pipe(p); FILE *f = tmpfile(); fputs(\"x\", f); fflush(f);
    flashfork_ready(&argc, &argv);
    printf(\"%d %d\\n\", prctl(PR_GET_DUMPABLE), (int)write(p[1], \"x\", 1)); return 0;
}",
	);
	good(other.warm_of("hides").output().unwrap());
	for _ in 0..2 {
		let clone = other.run(&["clone", "t"]);
		assert_eq!(both(&clone), ("0 1\n", ""));
	}
}
