use super::*;

#[test]
fn moments_are_read() {
	assert!(matches!(Moment::of("idle:1.5"), Some(Moment::Idle(span)) if span == Duration::from_millis(1500)));
	assert!(matches!(Moment::of("listen:80"), Some(Moment::Listen(Some(80)))));
	assert!(matches!(Moment::of("listen"), Some(Moment::Listen(None))));
	assert!(matches!(Moment::of("line:a:b"), Some(Moment::Line(_))));
	for wrong in ["idle:-1", "idle:0", "idle:x", "listen:70000", "line:(", "other", "line"] {
		assert!(Moment::of(wrong).is_none(), "{wrong}");
	}
}

#[test]
fn a_socket_that_listens_is_seen() {
	let pid = i32::try_from(std::process::id()).unwrap();
	let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
	let port = listener.local_addr().unwrap().port();
	assert!(listens(pid, Some(port)) && listens(pid, None));
	let mut watch = Watch::new();
	let elsewhere = Moment::Listen(Some(if port == 99 { 98 } else { 99 }));
	assert!(watch.listens_elsewhere(&elsewhere, pid).unwrap().contains(&port));
	drop(listener);
	assert!(!listens(pid, Some(port)));
	assert!(watch.listens_elsewhere(&Moment::Listen(None), pid).is_none());
}

/// It is not idle while it waits for a processor, or uses one.
#[test]
fn a_process_that_has_to_do_is_not_idle() {
	let start = |command| std::process::Command::new("sh").args(["-c", command]).spawn().unwrap();
	let (mut busy, mut idle) = (start("while :; do :; done"), start("exec sleep 1000"));
	let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
	let (span, mut of_busy, mut of_idle) = (Duration::from_millis(100), Watch::new(), Watch::new());
	let mut looks = 0;
	// While it takes the other one.
	while !of_idle.is_idle(span, pid(&idle)) || looks < 20 {
		assert!(!of_busy.is_idle(span, pid(&busy)));
		looks += 1;
		std::thread::sleep(Duration::from_millis(10));
	}
	for child in [&mut busy, &mut idle] {
		child.kill().unwrap();
		child.wait().unwrap();
	}
}

/// Else what it has used meanwhile would be taken for nothing.
#[test]
fn what_a_thread_has_waited_counts_when_it_is_gone() {
	let gone = OsString::from("gone");
	let counted = Duration::from_secs(3);
	let mut waits = Waits { of: HashMap::from([(gone.clone(), counted)]), all: counted };
	let (all, _) = waits.look(i32::try_from(std::process::id()).unwrap());
	assert!(all.checked_sub(counted).is_some(), "the count of all went back");
	assert!(!waits.of.contains_key(&gone));
}

#[test]
fn this_process_has_used_some_time() {
	assert!(processor_time(i32::try_from(std::process::id()).unwrap()).unwrap() > Duration::ZERO);
}
