//! What becomes of a shell whose monitor has a bug. Its own process, since it has one panic hook.

use flashfork_proto::shell::{Channel, Ended, FromShell};
use flashfork_vmm::shell::tell_of_panics;
use std::sync::Arc;

#[test]
fn a_panic_of_any_thread_is_told_in_one_line() {
	let (daemon, shell) = Channel::pair().unwrap();
	tell_of_panics(&Arc::new(shell));
	let thread = std::thread::Builder::new().name("devices".into());
	let thread = thread.spawn(|| panic!("queue {}\nis no queue", 7)).unwrap();
	assert!(thread.join().is_err());
	let (told, _) = daemon.receive::<FromShell>().unwrap();
	let FromShell::Ended(Ended::Failed(line)) = told else { panic!("{told:?}") };
	assert!(line.contains("thread devices") && line.contains("queue 7 is no queue"), "{line}");
	assert!(line.contains("tests/panic.rs") && !line.contains('\n'), "{line}");
}
