use super::*;
use flashfork_proto::shape::{Pages, Shape};
use std::sync::atomic::{AtomicU64, Ordering};

/// Each is younger than those before.
fn made() -> u64 {
	static MADE: AtomicU64 = AtomicU64::new(1);
	MADE.fetch_add(1, Ordering::Relaxed)
}

fn template(name: &str, from: Option<&str>) -> Template {
	Template {
		name: name.into(),
		shape: Shape { memory_mib: 256, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 0 },
		created_s: 0,
		made_ns: made(),
		clones_made: 0,
		clones_alive: 0,
		max_clones: None,
		forked_from: from.map(Into::into),
		resident_bytes: 3 << 20,
		shared_bytes: 1 << 20,
		boot_ns: None,
	}
}

fn clone(name: &str, template: &str, from: Option<&str>) -> Clone {
	Clone {
		name: name.into(),
		template: template.into(),
		forked_from: from.map(Into::into),
		made_ns: made(),
		generation: String::new(),
		state: CloneState::Ready,
		pid: 1,
		cid: 3,
		claim: flashfork_proto::shell::ClaimTimes::default(),
		first_exit_ns: 0,
		ready_ns: None,
		trouble: None,
		ended: None,
		memory_bytes: Some(2 << 20),
	}
}

#[test]
fn everything_stands_below_what_it_came_from_and_once() {
	let [web, left] = [template("web", None), template("left", Some("lost"))];
	let first = clone("web-1", "web", None);
	let templates = [template("warm", Some("web-1")), web, left];
	let clones = [
		clone("warm-4", "warm", None),
		first,
		clone("web-2", "web", Some("web-1")),
		clone("orphan", "web", Some("web-9")),
		clone("alone", "none", Some("gone-1")),
	];
	let shown = show(&templates, &clones);
	let name = |line: &str| line.chars().take(32).collect::<String>().trim_end().to_owned();
	let names: Vec<_> = shown.lines().skip(1).map(name).collect();
	let expected =
		["web", "├── web-1", "│   ├── warm", "│   │   └── warm-4", "│   └── web-2", "└── orphan", "left", "alone"];
	assert_eq!(names, expected, "{shown}");
	let notes = shown.lines().filter(|line| line.ends_with("which is gone")).count();
	assert_eq!(notes, 3, "{shown}");
	assert_eq!(show(&[], &[]).lines().count(), 1);
}

#[test]
fn a_name_that_was_used_again_is_nobody_s_origin() {
	let (kid, warm) = (clone("kid", "web", Some("web-1")), template("warm", Some("web-1")));
	let again = [clone("web-1", "web", None), clone("web-2", "web", None)];
	let (templates, [one, two]) = ([warm, template("web", None)], again);
	let clones = [Clone { made_ns: made(), ..one }, kid, Clone { made_ns: made(), ..two }];
	let shown = show(&templates, &clones);
	let starts: Vec<_> = shown.lines().skip(1).map(|line| line.split("  ").next().unwrap()).collect();
	assert_eq!(starts, ["warm", "web", "├── web-1", "└── web-2", "kid"], "{shown}");
	assert_eq!(shown.matches("forked from clone web-1, which is gone").count(), 2, "{shown}");
}

#[test]
fn what_has_ended_is_shown_only_above_what_has_not() {
	let web = template("web", None);
	let ended = |name: &str, from| Clone { state: CloneState::Ended, ..clone(name, "web", from) };
	let all = [ended("web-1", None), ended("web-2", Some("web-1")), ended("web-3", Some("web-1"))];
	let all: Vec<_> = all.into_iter().chain([clone("web-4", "web", Some("web-2"))]).collect();
	let names = |clones: &[Clone]| clones.iter().map(|clone| clone.name.clone()).collect::<Vec<_>>();
	let mut pruned = all.clone();
	prune(&[web], &mut pruned, false);
	assert_eq!(names(&pruned), ["web-1", "web-2", "web-4"]);
	assert!(!show(&[], &pruned).contains("gone"));
	let mut kept = all.clone();
	prune(&[], &mut kept, true);
	assert_eq!(kept.len(), 4);
}
