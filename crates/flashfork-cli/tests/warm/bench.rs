//! `flashfork bench warm`.

use crate::measured;

#[test]
fn programs_are_measured_and_no_template_stays() {
	let cells = [
		("true", "cold", "whole"),
		("true", "clone", "whole"),
		("true", "clone", "clone_faults"),
		("perl", "clone", "line"),
		("perl", "clone-busy", "whole"),
	];
	measured::all_of(&["warm", "--programs", "true,perl"], &cells);
}
