//! Templates of real programs: how they are made, found, listed and removed, and what is refused.

mod common;

use common::{Place, kill, name, printed, shim, state, until};
use flashfork_templates::{Directory, Error, Ready, ReadyAt, Removed, Renewal, State, Template, Why};
use std::{fs, io::Read, num::NonZeroU64, os::unix::fs::PermissionsExt};

#[test]
fn the_warm_up_has_its_own_environment_and_output() {
	let place = Place::new();
	let source = r#"#include <stdio.h>
#include <stdlib.h>
int flashfork_ready(int *, char ***) __attribute__((weak));
int main(int argc, char **argv) {
    printf("%s %s %s\n", argv[1], getenv("WARM"), getenv("HOME"));
    fprintf(stderr, "told\n");
    if (!flashfork_ready(&argc, &argv)) return 9;
    printf("%s %s\n", argv[argc - 1], getenv("WARM"));
}"#;
	let program = place.program("calls", source);
	let (mut read, write) = std::io::pipe().unwrap();
	let warm = Template::warm(&place.names, name("t"), &program, shim()).arg("first").env("WARM", "yes");
	let warm = warm.ready(Ready::Call).max_clones(NonZeroU64::new(2).unwrap());
	let facts = warm.output(write.try_clone().unwrap(), write).start().unwrap().wait().unwrap();
	assert_eq!((facts.at, facts.max, facts.made), (ReadyAt::Call, 2, 0));
	let mut said = String::new();
	read.read_to_string(&mut said).unwrap();
	assert_eq!(said, "told\nfirst yes (null)\n", "and the template has let go of the pipe");
	let template = Template::find(&place.names, name("t")).unwrap();
	for _ in 0..2 {
		assert_eq!(printed(template.run().arg("last").env("WARM", "no")), "last no\n");
	}
	assert!(matches!(template.run().start(), Err(Error::Nobody(_))), "those were all its clones");
}

#[test]
fn templates_are_listed_and_removed() {
	let place = Place::new();
	assert!(place.names.templates().unwrap().is_empty());
	let (first, second) = (place.shell("b"), place.shell("a"));
	let clone = first.run().args(["-c", "kill -STOP $$"]).start().unwrap();
	let list = place.names.templates().unwrap();
	let facts = |state| if let State::Waiting(facts) = state { facts } else { panic!("{state:?}") };
	let rows: Vec<_> = list.iter().map(|t| (t.name.as_str(), facts(t.state).running, &*t.command)).collect();
	assert_eq!(rows, [("a", 0, "sh"), ("b", 1, "sh")]);
	assert_eq!(list[1].pid, Some(first.facts().unwrap().pid));
	assert_eq!((first.remove().unwrap(), second.remove().unwrap()), (Removed::ClonesRun(1), Removed::Gone));
	assert_eq!((first.remove().unwrap(), place.names.names().unwrap().len()), (Removed::Nobody, 0));
	clone.kill().unwrap();
	clone.wait().unwrap();
	let third = place.shell("c");
	let pid = third.facts().unwrap().pid;
	kill(pid, libc::SIGKILL);
	// Another test's warm-up may have waited for it already.
	until("it is dead", || matches!(state(pid), Some('Z') | None));
	assert_eq!(third.remove().unwrap(), Removed::HadEnded);
	// The next that is warmed waits for it.
	place.shell("d");
	assert_eq!(state(pid), None);
}

#[test]
fn refusals_say_what_why_and_what_to_do() {
	let place = Place::new();
	place.shell("taken");
	let refused = |program: &str, name: &str| place.warm(name, program).start().map(drop).unwrap_err().to_string();
	for (program, text) in [
		("no-such-program", "can't run 'no-such-program': not found in PATH"),
		("/etc/passwd", "can't run /etc/passwd: it is no executable file"),
		("/nonexistent", "can't run /nonexistent: No such file or directory (os error 2)"),
	] {
		assert_eq!(refused(program, "t"), text);
	}
	let taken = refused("sh", "taken");
	assert_eq!(taken, "there is a template taken; `flashfork rm taken` removes it, or choose another name");
	let script = place.path().join("script");
	fs::write(&script, "#!/bin/sh\necho never\n").unwrap();
	fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
	let wrapped = place.warm("t", &script).start().unwrap().wait().unwrap_err().to_string();
	assert!(wrapped.contains("it is a wrapper, and is followed only where it becomes the program"), "{wrapped}");
	let lost = place.path().join("shim.so");
	let warm = Template::warm(&place.names, name("t"), "/bin/sh", &lost);
	let text = warm.start().map(drop).unwrap_err().to_string();
	assert!(text.starts_with(&format!("{} is not there, which is the shim", lost.display())), "{text}");
	for odd in ["a b", "$ORIGIN"].map(|odd| place.path().join(odd)) {
		fs::copy(shim(), &odd).unwrap();
		let text = Template::warm(&place.names, name("t"), "/bin/sh", &odd).start().map(drop).unwrap_err().to_string();
		assert!(text.ends_with("from a path with a blank, colon or $; install it elsewhere"), "{text}");
	}
	let bad = "a/b".parse::<flashfork_templates::Name>().unwrap_err().to_string();
	assert!(bad.starts_with("a name is 1 to 64 letters"), "{bad}");
	fs::set_permissions(place.names.path(), fs::Permissions::from_mode(0o750)).unwrap();
	let open = Directory::open(place.names.path()).unwrap_err().to_string();
	assert!(open.contains("is no place for templates: others may look into it"), "{open}");
	fs::set_permissions(place.names.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_program_that_is_never_ready_is_told_and_leaves_nothing() {
	let place = Place::new();
	let wait = |warm: flashfork_templates::Warm<'_>| warm.start().unwrap().wait().unwrap_err().to_string();
	let ends = place.program("ends", "int main(void) { return 3; }");
	let ended = wait(place.warm("t", &ends).ready(Ready::Call));
	let text =
		format!("{} ended with exit status 3 before it was ready; it must call flashfork_ready()", ends.display());
	assert!(ended.starts_with(&text), "{ended}");
	let source = "#include <pthread.h>\n#include <unistd.h>\nstatic void *work(void *x) { pause(); return x; }\n\
		__attribute__((constructor)) static void f(void) { pthread_t t; pthread_create(&t, 0, work, 0); }\n\
		int main(void) { return 0; }";
	let threads = wait(place.warm("t", place.program("threads", source)));
	assert!(threads.contains("can't be a template: at its ready point it has other threads"), "{threads}");
	assert_eq!(fs::read_dir(place.names.path()).unwrap().count(), 0);
}

#[test]
fn a_warm_up_that_is_given_up_is_ended() {
	let place = Place::new();
	let mut warming = place.warm("t", "sleep").arg("1000").ready(Ready::Call).start().unwrap();
	assert!(warming.advance().unwrap().is_none());
	let children = fs::read_to_string(format!("/proc/self/task/{}/children", thread())).unwrap();
	let child: i32 = children.trim().parse().unwrap();
	drop(warming);
	assert_eq!(state(child), None);
	assert_eq!(fs::read_dir(place.names.path()).unwrap().count(), 0);
}

fn thread() -> i32 {
	// SAFETY: asks for a number.
	unsafe { libc::gettid() }
}

#[test]
fn there_is_no_clone_once_code_has_changed_unless_a_fresh_one_is_wanted() {
	let place = Place::new();
	let program = place.path().join("shell");
	fs::copy("/bin/sh", &program).unwrap();
	place.warm("t", &program).start().unwrap().wait().unwrap();
	let template = Template::find(&place.names, name("t")).unwrap();
	let run = || template.run().args(["-c", ":"]);
	assert!(run().start().unwrap().wait().unwrap().success());
	let first = template.facts().unwrap().pid;
	assert!(matches!(template.renew(None).unwrap(), Renewal::Done));
	fs::copy("/bin/sh", place.path().join("new")).unwrap();
	fs::rename(place.path().join("new"), &program).unwrap();
	let Error::Stale(stale) = run().start().unwrap_err() else { panic!("another error") };
	assert_eq!((&*stale.what, stale.count, stale.why), (program.to_str().unwrap(), 1, Why::File));
	assert_eq!((template.facts().unwrap().changed, template.facts().unwrap().pid), (1, first));
	assert!(run().fresh().start().unwrap().wait().unwrap().success());
	let second = template.facts().unwrap();
	assert!(second.pid != first && second.changed == 0 && state(first).is_none());
	// Of those who wait meanwhile the first makes it anew.
	fs::copy("/bin/sh", place.path().join("new")).unwrap();
	fs::rename(place.path().join("new"), &program).unwrap();
	let Renewal::Warming(warming) = template.renew(None).unwrap() else { panic!("not stale") };
	assert!(matches!(template.renew(None).unwrap(), Renewal::Others));
	let third = warming.wait().unwrap();
	assert!(run().start().unwrap().wait().unwrap().success() && template.facts().unwrap().pid == third.pid);
	// One that can't be started leaves the old one.
	fs::remove_file(&program).unwrap();
	let failed = template.renew(None).unwrap_err().to_string();
	assert!(failed.starts_with("can't warm t anew, and it stays as it was: can't run"), "{failed}");
	assert_eq!(template.facts().unwrap().pid, third.pid);
}

#[test]
fn several_threads_warm_and_clone_at_a_time() {
	let place = Place::new();
	std::thread::scope(|scope| {
		let warmed = ["a", "b", "c"].map(|name| {
			let place = &place;
			scope.spawn(move || {
				let template = place.shell(name);
				let run = |i: u8| printed(template.run().args(["-c", "echo $0 $1", name, &i.to_string()]));
				assert!((0..5).all(|i| run(i) == format!("{name} {i}\n")));
			})
		});
		warmed.into_iter().for_each(|thread| thread.join().unwrap());
	});
	// They outlive the threads that have warmed them.
	let list = place.names.templates().unwrap();
	let waiting = |state| matches!(state, State::Waiting(facts) if facts.made == 5 && facts.running == 0);
	assert!(list.len() == 3 && list.iter().all(|template| waiting(template.state)), "{list:?}");
}
