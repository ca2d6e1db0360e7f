//! Whoever takes a program over has no more rights than the program has.

use crate::{
	place::{assert_says, line, pids, processes, stderr, until},
	programs::Program,
};
use std::{fs, path::Path, process::Stdio};

/// What one process may.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
	pub credentials: Vec<String>,
	pub capabilities: Vec<String>,
	pub users: String,
}

/// Of a process and of all others in its memory.
pub fn of_one_memory(pid: i32) -> Vec<Rights> {
	const KCMP_VM: i32 = 1;
	let shares = |other: &i32| {
		// SAFETY: takes numbers.
		unsafe { libc::syscall(libc::SYS_kcmp, pid, *other, KCMP_VM, 0, 0) == 0 }
	};
	let all: Vec<_> = processes().filter(shares).filter_map(of).collect();
	assert!(!all.is_empty());
	all
}

fn of(pid: i32) -> Option<Rights> {
	let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
	let lines = |keys: &[&str]| -> Vec<String> {
		let line = |key: &&str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
		keys.iter().map(|key| line(key).trim().to_owned()).collect()
	};
	let users = fs::read_link(format!("/proc/{pid}/ns/user")).ok()?;
	Some(Rights {
		credentials: lines(&["Uid:", "Gid:", "Groups:", "NoNewPrivs:", "Seccomp:"]),
		capabilities: lines(&["CapPrm:", "CapEff:", "CapInh:", "CapAmb:", "CapBnd:"]),
		users: users.to_str()?.to_owned(),
	})
}

/// A process that has become this program.
pub fn running(program: &Path) -> Option<i32> {
	processes().find(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program))
}

/// It gives root up, and filters its calls, and then looks for a process of which it could make use.
const GIVES_UP: &str = r#"
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
int main(int argc, char **argv) {
	setgroups(0, 0); setgid(65534); setuid(65534); prctl(PR_SET_DUMPABLE, 1);
	if (argc > 3) {
		struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); struct sock_fprog all = {1, &allow};
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all);
	}
	another();
	int found = 0; DIR *d = opendir("/proc"); struct dirent *e;
	while ((e = readdir(d))) {
		int pid = atoi(e->d_name); char name[64]; sprintf(name, "/proc/%d/mem", pid);
		if (pid > 0 && pid != getpid()) found += open(name, O_RDWR) >= 0 || !kill(pid, 0) || !ptrace(PTRACE_SEIZE, pid, 0, 0);
	}
	closedir(d);
	int fd = open(argv[1], O_WRONLY); dprintf(fd, "%d\n", found); close(fd);
	while (access(argv[2], F_OK)) usleep(1000);
	READY; return 0;
}
"#;

#[test]
fn nothing_in_a_programs_memory_has_rights_that_it_gave_up() {
	// SAFETY: asks for a number.
	if unsafe { libc::geteuid() } != 0 {
		return;
	}
	let program = Program::new(GIVES_UP);
	let place = &program.place;
	fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
	for (more, reason) in [(&[][..], "credentials or capabilities"), (&["filter"], "a system call filter")] {
		let [found, go] = ["found", "go"].map(|name| place.at(name));
		fs::write(&found, "").unwrap();
		fs::set_permissions(&found, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
		let _ = fs::remove_file(&go);
		let command = program.warms();
		let mut warm = place.flashfork(&command);
		let warm = warm.args([&found, &go]).args(more).stderr(Stdio::piped()).spawn().unwrap();
		let told = || fs::read_to_string(&found).unwrap();
		until("it has looked", || told().ends_with('\n'));
		assert_eq!(told(), "0\n", "it can use no other process");
		let all = of_one_memory(pids(place, "program")[0]);
		assert!(all.iter().all(|rights| *rights == all[0]), "{all:?}");
		fs::write(&go, "").unwrap();
		let refused = warm.wait_with_output().unwrap();
		// Where it takes long that is said, too.
		assert!(stderr(&refused).lines().last().unwrap().contains(reason), "{}", stderr(&refused));
		place.until_empty();
	}
}

/// The keeper's helper in the program's memory has the program's limits.
#[test]
fn where_too_few_descriptors_are_allowed_a_clone_is_refused_in_words() {
	let program = Program::new(
		"int main(void) { struct rlimit files = {8, 8}; setrlimit(RLIMIT_NOFILE, &files); READY; return 0; }",
	);
	// Where nobody may lift the limit, looking may take too many, too.
	let warm = program.try_warm(&[]);
	let refused = if warm.status.success() { program.cloned() } else { warm };
	assert_says(line(&refused), "Too many open files");
}
