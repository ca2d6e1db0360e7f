//! Python programs that know nothing of clones: what they draw at random.

use crate::{
	listen::warm,
	place::{Place, assert_says, line, stderr, stdout},
};
use std::collections::BTreeSet;

const PYTHON: &str = "/usr/bin/python3";

/// Draws before it is ready, so that a second normal number waits, and in three threads while it is stopped: one draws
/// many at a time, in code that holds numpy's lock and not Python's.
const DRAWS: &str = r"
import random, sys, threading, time, numpy
random.seed(1); numpy.random.seed(1)
random.gauss(0, 1); numpy.random.normal()
stop = False
def few():
    while not stop: random.random(); numpy.random.random()
def many():
    while not stop: numpy.random.random(1 << 16)
threads = [threading.Thread(target=draw) for draw in (few, few, many)]
if 'busy' in sys.argv: [thread.start() for thread in threads]
print('warm', flush=True)
time.sleep(0.5)
def draw():
    for number in random.random(), random.gauss(0, 1), numpy.random.random(), numpy.random.normal(), random.getrandbits(62): print(repr(float(number)))
draw()
other = threading.Thread(target=draw); other.start(); other.join()
stop = True
";

#[test]
fn clones_of_a_python_that_knows_nothing_draw_no_numbers_alike() {
	let place = Place::new();
	let script = place.file("draws.py", DRAWS);
	let script = script.as_str();
	for arguments in [&[][..], &["busy"]] {
		warm(&place, "line:^warm$", &[&[PYTHON, script], arguments].concat());
		let mut drawn = BTreeSet::new();
		for _ in 0..4 {
			let clone = place.cloned();
			let numbers = || stdout(&clone).lines();
			assert_eq!((numbers().count(), clone.status.code()), (10, Some(0)), "{}", stderr(&clone));
			assert!(numbers().all(|number| drawn.insert(number.to_owned())), "{}", stdout(&clone));
		}
		place.remove();
	}
}

#[test]
fn a_python_whose_generators_are_not_known_is_refused() {
	let place = Place::new();
	for (changed, named) in [
		("import random; random._inst = object()", "random"),
		("import numpy; numpy.random.mtrand._rand = numpy.random.RandomState(numpy.random.PCG64())", "numpy"),
	] {
		let code = format!("{changed}\nprint('warm', flush=True)\nimport time; time.sleep(100)");
		let refused = place.run(&["warm", "--threads", "--ready", "line:^warm$", "t", "--", PYTHON, "-c", &code]);
		let told = line(&refused);
		assert!(!refused.status.success() && told.contains("random numbers would be the same"), "{told}");
		assert_says(told, named);
	}
}

/// Its lock is free while others have it compute, and its modules may be imported later.
#[test]
fn a_python_without_generators_is_warmed_as_any_program() {
	let place = Place::new();
	let code = "print('warm', flush=True)\nimport time; time.sleep(0.5)\nimport random; print(random.random())";
	warm(&place, "line:^warm$", &[PYTHON, "-S", "-c", code]);
	let clones = [(); 3].map(|()| place.cloned());
	let drawn: BTreeSet<&str> = clones.iter().map(stdout).collect();
	assert_eq!(drawn.len(), 3, "{drawn:?}");
}
