//! Alone in its process, whose descriptors and children are counted.

mod common;

use common::{Place, printed};
use flashfork_templates::Removed;
use std::os::fd::AsFd;

fn descriptors() -> usize {
	std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Whether this process has a child, an ended one included.
fn has_child() -> bool {
	let mut status = 0;
	// SAFETY: the status is a local; nothing is waited for.
	unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) != -1 }
}

#[test]
fn no_descriptor_and_no_process_is_left() {
	let place = Place::new();
	let before = descriptors();
	for _ in 0..3 {
		let template = place.shell("t");
		assert_eq!(descriptors(), before, "a template needs none");
		assert_eq!(printed(template.run().args(["-c", "echo $0"])), "sh\n");
		let clone = template.run().args(["-c", "exit 3"]).start().unwrap();
		assert_eq!(descriptors(), before + 1, "a clone needs one");
		assert!(clone.as_fd().try_clone_to_owned().is_ok());
		assert_eq!(clone.wait().unwrap().code(), Some(3));
		drop(clone);
		assert!(template.run().arg("a\0b").start().is_err());
		assert_eq!(template.remove().unwrap(), Removed::Gone);
		assert!(place.warm("t", "/etc/passwd").start().is_err());
		assert_eq!(descriptors(), before);
		assert!(!has_child());
		assert_eq!(std::fs::read_dir(place.names.path()).unwrap().count(), 0);
	}
}
