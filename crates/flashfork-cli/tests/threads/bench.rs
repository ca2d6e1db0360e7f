//! `flashfork bench threads`.

use crate::measured;

#[test]
fn programs_with_threads_are_measured_and_no_template_stays() {
	let cells = [
		("java-line", "anew", "whole"),
		("java-classes", "best", "answer"),
		("java-50m", "server", "whole"),
		("java-50m", "clone", "running"),
		("java-50m", "clone-unsealed", "running"),
		("java-50m", "clone", "memory"),
		("node", "anew", "answer"),
		("node", "best", "answer"),
		("node", "clone", "answer"),
		("python", "best", "whole"),
		("python", "clone", "whole"),
		("threads-8", "clone", "running"),
	];
	let document = measured::all_of(&["threads", "--heaps", "50M", "--threads", "1,8", "--alive", "2"], &cells);
	assert!(document["missing"].as_array().is_none_or(Vec::is_empty), "{document}");
}
