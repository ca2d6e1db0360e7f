//! The daemon's side of a clone, whose shell these tests play.

use super::{super::claim::Claimed, *};
use crate::pool::{Program, Shell};
use flashfork_proto::shape::{Pages, Shape};

/// What comes at all comes in that time, however busy the machine is.
pub(in super::super) const PATIENCE: Duration = Duration::from_secs(120);

/// A clone that runs, and its shell's end of the channel.
pub(in super::super) fn running(origin: Weak<Entry>) -> (Arc<Running>, Channel) {
	after(origin, None)
}

/// What a shell is asked for next, without what comes along.
pub(in super::super) fn order(shell: &Channel) -> ToShell {
	shell.receive().unwrap().0
}

pub(in super::super) fn says(shell: &Channel, message: &FromShell) {
	shell.send(message, &[]).unwrap();
}

fn after(origin: Weak<Entry>, past: Option<CloneRecord>) -> (Arc<Running>, Channel) {
	let (shell, channel) =
		Shell::played(Shape { memory_mib: 4, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 });
	let program = Program { path: "/nothing".into(), args: Vec::new() };
	let nothing = std::fs::File::open("/dev/null").unwrap();
	let pools = Arc::new(Pools::new(program, nothing.into(), None, Store::none().unwrap()).unwrap());
	let claimed = Claimed { shell, generation: [0; 16], times: ClaimTimes::default(), early: Vec::new() };
	let born = Born {
		name: "t-1".into(),
		template: "t".into(),
		forked_from: None,
		origin,
		alive: None,
		own_forks: OwnForks::default(),
		job: Vec::new(),
		disks: Arc::default(),
		cid: 3,
		started: Instant::now(),
		past,
	};
	(Running::start(claimed, born, &pools, |_| ()).unwrap(), channel)
}

#[test]
fn a_late_answer_is_taken_for_none_of_the_next() {
	let (clone, shell) = running(Weak::new());
	thread::scope(|scope| {
		scope.spawn(|| {
			assert_eq!(order(&shell), ToShell::Pause);
			assert_eq!(order(&shell), ToShell::Resume);
			says(&shell, &FromShell::Failed("late".into()));
			says(&shell, &FromShell::Copied);
		});
		let late = clone.answer(&ToShell::Pause, &[], Duration::from_millis(10));
		assert!(matches!(late, Err(Unanswered::Asked(ShellFailure::Silent(_)))));
		assert!(matches!(clone.answer(&ToShell::Resume, &[], PATIENCE), Ok(FromShell::Copied)));
	});
	assert!(!clone.has_ended());
	clone.stop();
}

/// It ended with "answered out of turn" when two daemons in a row had been killed.
#[test]
fn an_answer_to_what_an_earlier_daemon_asked_is_taken_for_none_of_this_one_s() {
	let (before, _shell) = running(Weak::new());
	before.keep(&Store::none().unwrap()).unwrap();
	let past = before.record(&before.lock());
	let (clone, shell) = after(Weak::new(), past);
	let ToShell::Adopt(number) = order(&shell) else { panic!("not told") };
	let late = FromShell::Claimed(ClaimTimes::default());
	for said in [&FromShell::Adopted(1), &late, &FromShell::Adopted(2), &late, &FromShell::Adopted(number)] {
		says(&shell, said);
	}
	thread::scope(|scope| {
		scope.spawn(|| {
			assert_eq!(order(&shell), ToShell::Copy);
			says(&shell, &FromShell::Copied);
		});
		assert!(matches!(clone.answer(&ToShell::Copy, &[], PATIENCE), Ok(FromShell::Copied)));
	});
	[before, clone].iter().for_each(|clone| clone.stop());
}

#[test]
fn a_signal_that_nobody_asked_for_is_refused_and_ends_no_fork() {
	let (clone, shell) = running(Weak::new());
	says(&shell, &FromShell::Forked);
	assert_eq!(order(&shell), ToShell::Refuse);
	// While one is under way it is that fork's, and its end refuses it.
	let forking = clone.begin_fork(false).unwrap();
	says(&shell, &FromShell::Forked);
	forking.wait_for_signal(&[], || None).unwrap();
	drop(forking);
	assert_eq!(order(&shell), ToShell::Abandon);
	clone.stop();
}

#[test]
fn a_signal_after_a_fork_is_none_of_that_fork_s() {
	let (clone, shell) = running(Weak::new());
	let forking = clone.begin_fork(false).unwrap();
	thread::scope(|scope| {
		scope.spawn(|| {
			assert_eq!(order(&shell), ToShell::Branch { at_signal: true });
			says(&shell, &FromShell::Branched { state: Vec::new(), pause: Default::default() });
			says(&shell, &FromShell::Forked);
		});
		forking.branch(true, &[], PATIENCE).unwrap();
	});
	forking.wait_for_signal(&[], || None).unwrap();
	drop(forking);
	// It may not fork itself; nothing is given up.
	assert_eq!(order(&shell), ToShell::Refuse);
	clone.stop();
}

#[test]
fn a_shell_that_reads_no_refusal_costs_one_thread() {
	let (clone, shell) = running(Weak::new());
	while clone.input(&[b'x'; 4096]).is_ok() {}
	let before = Arc::strong_count(&clone);
	(0..9).for_each(|_| says(&shell, &FromShell::Forked));
	says(&shell, &FromShell::Trouble(String::new()));
	while clone.show().trouble.is_none() {}
	assert_eq!(Arc::strong_count(&clone), before + 1);
	clone.stop();
}

/// It waited for ever.
#[test]
fn a_guest_that_forks_itself_is_refused_though_a_rollback_could_not_be_asked_for() {
	let (clone, shell) = running(Weak::new());
	clone.lock().forks_itself = true;
	while clone.input(&[b'x'; 4096]).is_ok() {}
	let identity =
		flashfork_proto::agent::CloneIdentity { name: "t-1".into(), index: 1, generation: [1; 16], job: Vec::new() };
	let renewal = Renewal { identity, entropy: [0; 32], disks: Vec::new() };
	assert!(matches!(clone.rollback(renewal), Err(DaemonError::Deaf(_))));
	thread::scope(|scope| {
		scope.spawn(|| clone.has_not_forked(clone.generation(), "why"));
		while !matches!(order(&shell), ToShell::Refuse) {}
	});
	clone.stop();
}

#[test]
fn a_guest_that_ends_while_it_is_forked_is_the_guest_s_error_on_one_line() {
	let (clone, shell) = running(Weak::new());
	thread::scope(|scope| {
		scope.spawn(|| {
			assert_eq!(order(&shell), ToShell::Copy);
			let done = flashfork_proto::signal::Done { status: 0, result: b"one\ntwo\x1b[2J".to_vec() };
			says(&shell, &FromShell::Ended(Ended::Done(done)));
		});
		let error = clone.begin_fork(false).unwrap().copy(&[], PATIENCE).unwrap_err();
		assert_eq!(error.code(), api::ErrorCode::Guest);
		assert!(!error.to_string().contains(char::is_control), "{error}");
	});
}

/// One that has room for a page, and has two.
fn overfull() -> Delta {
	let file = crate::memory::create("flashfork:test", 4 << 20, Pages::Small).unwrap();
	let (pages, page) = (2, rustix::fs::fstat(&file).unwrap().st_blksize as u64);
	(0..pages).for_each(|at| assert_eq!(rustix::io::pwrite(&file, b"x", at * page).unwrap(), 1));
	Delta { file: Arc::new(file), room: 4096 }
}

#[test]
fn a_shell_that_copies_more_than_its_guest_may_have_written_ends() {
	let delta = overfull();
	check_that(&[Delta { file: delta.file.clone(), room: 8192 }], true);
	check_that(&[delta], false);
	let (clone, shell) = running(Weak::new());
	thread::scope(|scope| {
		// It says nothing.
		scope.spawn(|| order(&shell));
		let error = clone.begin_fork(false).unwrap().copy(&[overfull()], PATIENCE).unwrap_err();
		assert!(error.to_string().contains("more than its guest"), "{error}");
	});
	assert!(clone.has_ended());
}

fn check_that(deltas: &[Delta], fits: bool) {
	assert_eq!(super::super::fork::check(deltas).is_ok(), fits);
}

#[test]
fn a_shell_is_charged_for_what_there_is_of_its_forks() {
	let (clone, _shell) = running(Weak::new());
	let promised = |deltas: &[Delta]| {
		let mut forking = clone.begin_fork(false).unwrap();
		forking.promise(1 << 20, deltas).unwrap();
		forking.promised.bytes
	};
	let first = overfull();
	let taken = super::super::templates::bytes(&*first.file);
	assert_eq!(promised(&[first]), (1 << 20) + 4096);
	// It is gone, so that the second takes its place; the third is beside that.
	let second = overfull();
	assert_eq!(promised(std::slice::from_ref(&second)), (1 << 20) + 4096);
	assert_eq!(promised(&[overfull()]), (1 << 20) + taken + 4096);
	drop(second);
	assert_eq!(promised(&[overfull()]), (1 << 20) + taken + 4096, "what is given back may not be free yet");
	clone.stop();
}
