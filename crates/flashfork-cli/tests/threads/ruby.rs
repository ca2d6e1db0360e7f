//! Ruby, which compares its process's number with the one that its timer was made in.

use crate::place::{Place, good, stderr, stdout};
use std::{
	collections::BTreeSet,
	process::{Command, Stdio},
};

/// Threads that wait, sleep and are waited for, timeouts, children, and a signal to itself.
const PROGRAM: &str = r#"
require 'openssl'
require 'timeout'
asked, answers = Queue.new, Queue.new
Thread.new { loop { answers << asked.pop * 2 } }
ticks = 0
Thread.new { loop { sleep 0.01; ticks += 1 } }
OpenSSL::Random.random_bytes(4)
number = Process.pid
puts 'warm'
$stdout.flush
sleep 0.5
before = ticks
asked << 21
answer = answers.pop
child = IO.popen(['echo', 'child'], &:read)
Process.wait(fork { exit 3 })
late = begin; Timeout.timeout(0.1) { sleep 100 }; rescue Timeout::Error; 'late'; end
sleep 0.01 until ticks > before
caught = Queue.new
trap(:USR1) { caught << 'caught' }
Process.kill(:USR1, number)
p [answer, child, $?.exitstatus, late, caught.pop]
$stderr.puts(OpenSSL::Random.random_bytes(16).unpack1('H*'), Thread.new { OpenSSL::Random.random_bytes(16).unpack1('H*') }.value)
$stderr.puts(IO.popen('-') { |of| of ? of.read : print(OpenSSL::Random.random_bytes(16).unpack1('H*')) })
"#;

fn ruby(place: &Place, program: &str) -> Command {
	let script = place.file("program.rb", program);
	let mut command = place.flashfork(&["warm", "--threads", "--ready", "line:^warm$", "t", "--", "ruby"]);
	command.arg(script);
	command
}

#[test]
fn ruby_goes_on_in_every_clone_with_random_bytes_of_its_own() {
	let place = Place::new();
	good(ruby(&place, PROGRAM).output().unwrap());
	let plain = Command::new("ruby").arg(place.at("program.rb")).output().unwrap();
	let expected = stdout(&plain).strip_prefix("warm\n").unwrap();
	let mut drawn = BTreeSet::new();
	for clone in place.clones(2, 4, &[]) {
		assert_eq!((stdout(&clone), clone.status.code()), (expected, Some(0)), "{}", stderr(&clone));
		drawn.extend(stderr(&clone).lines().map(str::to_owned));
	}
	assert_eq!(drawn.len(), 6 * 3, "{drawn:?}");
}

/// It would not be told another number, because nobody knows it by its name.
#[test]
fn ruby_with_openssl_in_a_file_of_another_name_is_refused() {
	let place = Place::new();
	let source = "const char *file = \"../providers/implementations/rands/drbg.c\"; int f(void) { return 0; }";
	let library = place.program_with("extension.so", source, &["-shared", "-fPIC"]);
	let load = format!("require 'fiddle'\nFiddle.dlopen('{}')\nputs 'warm'\n$stdout.flush\nsleep", library);
	let refused = ruby(&place, &load).stdout(Stdio::null()).output().unwrap();
	// Where it takes long that is said, too.
	let said = stderr(&refused).lines().last().unwrap();
	assert!(said.contains("random numbers") && said.contains("extension.so"), "{said}");
}
