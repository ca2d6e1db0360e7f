//! Programs that start others while they are warmed: these are no templates, and keep no name alive.

use crate::place::{Place, kill, line, state, stdout, until};
use std::fs;

/// Says its own number and its child's. How the child is made, and what either does then, is said by macros.
const PARENT: &str = r#"
__attribute__((constructor)) static void start(void) {
    pid_t child = FORK;
    if (child == 0) {
        /* A group of its own, as a daemon has. */
        setsid();
        CHILD;
    }
    fprintf(stderr, "%d\n", child);
    PARENT;
}
int main(void) { puts("main"); fflush(stdout); return 0; }
"#;

struct Started {
	place: Place,
	child: i32,
}

impl Drop for Started {
	fn drop(&mut self) {
		kill(self.child, libc::SIGKILL);
	}
}

/// Whether `warm` takes such a program, and what it says.
fn warm(fork: &str, child: &str, parent: &str) -> (Started, bool, String) {
	let place = Place::new();
	let macros = [format!("-DFORK={fork}"), format!("-DCHILD={child}"), format!("-DPARENT={parent}")];
	let program = place.program_with("parent", PARENT, &macros.each_ref().map(String::as_str));
	// No pipe: the child keeps it open.
	let said = place.at("said");
	let mut warm = place.flashfork(&["warm", "t", "--", &program]);
	let warm = warm.stdout(std::process::Stdio::null()).stderr(fs::File::create(&said).unwrap());
	let success = warm.status().unwrap().success();
	let said = fs::read_to_string(said).unwrap();
	let child = said.lines().next().unwrap().parse().unwrap();
	(Started { place, child }, success, said)
}

const FOREVER: &str = "for(;;)pause()";

#[test]
fn a_program_that_ends_is_told_though_its_child_lives() {
	for fork in ["fork()", "syscall(SYS_clone,SIGCHLD,0,0,0,0)"] {
		let (_started, success, said) = warm(fork, FOREVER, "exit(3)");
		assert!(!success && said.contains("ended with exit status 3 before it was ready"), "{said}");
	}
}

#[test]
fn a_child_of_the_warm_up_keeps_no_connection() {
	let (started, success, said) = warm("fork()", FOREVER, "0");
	assert!(success, "{said}");
	until("the child has closed them", || {
		let descriptors = fs::read_dir(format!("/proc/{}/fd", started.child)).unwrap();
		let mut targets = descriptors.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
		targets.all(|target| !target.to_string_lossy().starts_with("socket:"))
	});
	assert_eq!(stdout(&started.place.cloned()), "main\n");
}

/// One that the C library knows nothing of keeps the socket: the name is known to be of a template that is gone all the
/// same.
#[test]
fn a_template_that_is_gone_is_told_though_a_child_keeps_its_socket() {
	let (started, success, said) = warm("syscall(SYS_clone,SIGCHLD,0,0,0,0)", FOREVER, "0");
	assert!(success, "{said}");
	let place = &started.place;
	let pid = place.template_pid();
	kill(pid, libc::SIGKILL);
	until("it is gone", || state(pid).is_none());
	assert!(line(&place.cloned()).contains("the template t has ended"));
	place.warm_shell();
	assert_eq!(stdout(&place.shell("echo on").output().unwrap()), "on\n");
}

/// Both come to `main`; one of them is the template.
#[test]
fn a_child_that_goes_on_to_main_is_no_template() {
	for fork in ["fork()", "syscall(SYS_clone,SIGCHLD,0,0,0,0)"] {
		let (started, success, said) = warm(fork, "return", "0");
		assert!(success, "{said}");
		until("the child has ended", || state(started.child).is_none());
		assert_ne!(started.place.template_pid(), started.child);
		assert_eq!(stdout(&started.place.cloned()), "main\n");
	}
}
