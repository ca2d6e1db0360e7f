//! Clones of a warmed Perl and Ruby, beside what the interpreters make of the same.

use crate::place::{Place, Start, assert_says, both, flashfork, ignoring, line, outcome, signal, stderr, stdout};
use std::{
	fs,
	io::Write,
	os::unix::process::ExitStatusExt,
	process::{Command, Output, Stdio},
};

/// With a template `t` of an interpreter that has done nothing.
fn warmed(interpreter: &str) -> Place {
	let place = Place::new();
	place.warm(&[interpreter, "-e", "1"]);
	place
}

/// The same in a clone and in the interpreter started anew.
fn same(place: &Place, interpreter: &str, arguments: &[&str]) {
	let mut cold = ignoring(Command::new(interpreter), &[]);
	let cold = cold.args(arguments).current_dir(place.path()).stdin(Stdio::null()).env("ONE", "1=1").output().unwrap();
	let mut clone = place.flashfork(&[&["clone", "t"], arguments].concat());
	let clone = clone.current_dir(place.path()).env("ONE", "1=1").output().unwrap();
	assert_eq!((outcome(&clone), clone.status.signal()), (outcome(&cold), cold.status.signal()), "{arguments:?}");
}

/// The same from a pipe, which has an argument.
fn same_piped(place: &Place, interpreter: &str, program: &str) {
	let piped = |interpreter: &str| {
		let mut sh = place.sh(&format!("cat program | {interpreter} - a"));
		outcome(&sh.current_dir(place.path()).output().unwrap())
	};
	assert_eq!(piped(&format!("{} clone t", flashfork())), piped(interpreter), "{program}");
}

/// The same with streams that a shell has led elsewhere or closed.
fn same_with(place: &Place, interpreter: &str, streams: &str, arguments: &[&str]) {
	let run = |program: &[&str]| {
		let mut sh = ignoring(place.sh(&format!("\"$@\" {streams}")), &[]);
		sh.arg("sh").args(program).args(arguments);
		let output = sh.current_dir(place.path()).output().unwrap();
		outcome(&output)
	};
	let clone = run(&[flashfork(), "clone", "t"]);
	assert_eq!(clone, run(&[interpreter]), "{streams} {arguments:?}");
}

fn differ(place: &Place, code: &str) {
	let mut seen = std::collections::HashSet::new();
	for output in place.clones(2, 2, &["-e", code]) {
		assert!(seen.insert(stdout(&output).to_owned()), "{}{}", stdout(&output), stderr(&output));
	}
}

fn from_input(place: &Place, program: &[u8]) -> Output {
	let mut clone = place.flashfork(&["clone", "t"]).start_talk();
	clone.stdin.take().unwrap().write_all(program).unwrap();
	clone.wait_with_output().unwrap()
}

/// Both forks put back what was blocked before, which in a template is everything.
fn signals_end_it(place: &Place, code: &str) {
	for number in [libc::SIGTERM, libc::SIGHUP] {
		let mut clone = place.flashfork(&["clone", "t", "-e", code]).start();
		let mut first = [0; 3];
		std::io::Read::read_exact(clone.stdout.as_mut().unwrap(), &mut first).unwrap();
		signal(&clone, number);
		assert_eq!(clone.wait().unwrap().signal(), Some(number));
	}
}

const PERL: &str = "/usr/bin/perl";

#[test]
fn perl_runs_a_program_as_ever() {
	let place = Place::new();
	let warmed = place.warm(&[PERL, "-MPOSIX", "-MData::Dumper", "-e", "print \"warm\\n\"; # once\nour $kept = rand;"]);
	assert!(stdout(&warmed).starts_with("warm\nt is ready to run Perl"), "{}", stdout(&warmed));
	fs::write(
		place.at("show.pl"),
		"#!/usr/bin/perl -w
use strict; use POSIX;
print \"$0 @ARGV \", __FILE__, ' ', __LINE__, \" $ENV{ONE} \", defined caller() ? 'called' : 'top', \"\\n\";
print POSIX::floor(2.5), ' ', join(',', grep /LD_PRELOAD|FLASHFORK/, keys %ENV), `echo $ENV{ONE}`, \"\\n\";
while (<DATA>) { print \"data $_\" }
my $undefined; print \"warns $undefined\\n\";
BEGIN { print \"begin\\n\" } INIT { print \"init\\n\" } END { print \"end\\n\" }
print STDERR \"error\\n\";
if (my $pid = fork) { waitpid $pid, 0; print $? >> 8, \"\\n\" } else { POSIX::_exit(7) }
die 'dead' if @ARGV > 1;
exit 3 if @ARGV;
__END__
one
two
",
	)
	.unwrap();
	for arguments in [
		&["show.pl"][..],
		&["show.pl", "a"],
		&["show.pl", "a", "b"],
		&["-e", "print \"$0 @ARGV\\n\"", "x y"],
		&["nowhere.pl"],
	] {
		same(&place, PERL, arguments);
	}
	assert_eq!(stdout(&from_input(&place, b"print \"$0 in\\n\"")), "- in\n");
	differ(&place, "print rand");
	signals_end_it(&place, "$| = 1; print \"on\\n\"; sleep 1000");
	let option = place.run(&["clone", "t", "-x"]);
	assert_eq!((option.status.code(), stderr(&option).lines().count()), (Some(2), 1));
}

#[test]
fn perl_tells_of_output_that_is_lost() {
	let place = warmed(PERL);
	for streams in [">/dev/full", ">&-", "<&-", "2>&-", "<&- >&-"] {
		for code in ["print 1", "print 1; exit 0", "print STDERR 1; print <STDIN>"] {
			same_with(&place, PERL, streams, &["-e", code]);
		}
	}
}

#[test]
fn perl_keeps_the_layers_of_its_streams() {
	let place = Place::new();
	let code = "print PerlIO::get_layers(STDIN), PerlIO::get_layers(STDOUT), length <STDIN>, chr 8364";
	for option in ["-CS", "-C0", "-Mopen=:std,:encoding(UTF-8)"] {
		place.warm(&[PERL, option, "-e", "1"]);
		let [mut cold, mut clone] = [(); 2].map(|()| place.sh("echo é | \"$@\""));
		cold.args(["sh", PERL, option, "-e", code]);
		clone.args(["sh", flashfork(), "clone", "t", "-e", code]);
		let (cold, clone) = (cold.output().unwrap(), clone.output().unwrap());
		assert_eq!(stdout(&clone), stdout(&cold), "{option}");
		place.remove();
	}
}

#[test]
fn perl_names_the_program_and_ends_with_its_status_where_it_does_not_compile() {
	let place = warmed(PERL);
	place.file("strict.pl", "use strict;\nprint 1;\n$undeclared = 5;\n");
	place.file("taint.pl", "#!/usr/bin/perl -T\nprint 1;\n");
	for arguments in [
		&["strict.pl"][..],
		&["taint.pl"],
		&["-e", "use strict; $undeclared = 5"],
		&["-e", "BEGIN { die 5 }"],
		&["-e", "BEGIN { print $! + 0 } print $! + 0"],
		&["-e", "BEGIN { $SIG{__DIE__} = sub { print \"mine @_\" } } die 5"],
		&["-e", "print exists $SIG{__DIE__} ? 'handled' : 'free'; die 5"],
	] {
		same(&place, PERL, arguments);
	}
}

#[test]
fn perl_runs_a_script_with_a_byte_order_mark_and_refuses_a_directory() {
	let place = warmed(PERL);
	place.file("mark.pl", "\u{feff}print __LINE__, ' ', length('é'), \"\\n\"; die");
	for name in ["mark.pl", ".", "/", "nowhere/script.pl"] {
		same(&place, PERL, &[name]);
	}
}

#[test]
fn perl_data_is_the_file_of_the_script() {
	let place = warmed(PERL);
	let places = "#!/usr/bin/perl
print tell(DATA), ' ', -s DATA, ' ', -f DATA ? 'file' : 'none', \"\\n\";
my $begin = tell DATA;
seek DATA, 0, 0;
print 'line: ', $_ while <DATA>;
seek DATA, $begin, 0;
print <DATA>;
__END__
one
two
";
	place.file("places.pl", places);
	place.file("marked.pl", format!("\u{feff}{}", places.replace('\n', "\r\n")));
	let wide = "use utf8; package Other; print length \"é\", length scalar <DATA>;\n__DATA__\né\n";
	place.file("wide.pl", wide);
	for script in ["places.pl", "marked.pl", "wide.pl"] {
		same(&place, PERL, &[script]);
	}
	// The lock that keeps a second one from running.
	let lock = "use Fcntl ':flock';
flock(DATA, LOCK_EX | LOCK_NB) or exit 7;
$| = 1;
print \"on\\n\";
<STDIN>;
__DATA__
";
	place.file("lock.pl", lock);
	let mut first = place.flashfork(&["clone", "t", "lock.pl"]);
	first.current_dir(place.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
	let mut first = first.spawn().unwrap();
	std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
	let second = place.flashfork(&["clone", "t", "lock.pl"]).current_dir(place.path()).output().unwrap();
	assert_eq!(second.status.code(), Some(7));
	drop(first.stdin.take());
	assert!(first.wait().unwrap().success());
}

#[test]
fn perl_reads_on_behind_a_program_from_standard_input() {
	let place = warmed(PERL);
	for program in [
		"print 'in ', <STDIN>;\n__END__\nrest\nmore\n",
		"print scalar <DATA>, 'in ', <STDIN>;\n__END__\nrest\nmore\n",
		"package Other; print <DATA>;\n__DATA__\nrest\n",
		"print <<__END__, <STDIN>;\nhere\n__END__\nprint 'on';\n",
		"print 1;\n\n=pod\n\n__END__\n\n=cut\n\nprint <STDIN>;\n",
		"print '\n__END__\n', <STDIN>;\n__END__\nrest\n",
		"BEGIN { print scalar <STDIN> }\nprint 1;\nprint 2;\n",
		"#!/usr/bin/perl -w\nwarn $^W;\nprint undef() . 'x', $! + 0;\ndie;\n",
		"use utf8; print length 'é', length scalar <DATA>;\n__DATA__\né\n",
		"print eof(STDIN), __LINE__; # no line ends here",
	] {
		place.file("program", program);
		for streams in ["<program", "<<'END OF PROGRAM'\n$(cat program)\nEND OF PROGRAM\n"] {
			same_with(&place, PERL, streams, &[]);
		}
		same_piped(&place, PERL, program);
	}
}

#[test]
fn perl_does_what_the_first_line_of_a_script_asks_for() {
	let place = warmed(PERL);
	let body = "our ($x, $y, @F); print \"x=$x y=$y @ARGV $^W @F \", __LINE__, \" $_\", \"\\n\"; BEGIN { print \"begin $x @ARGV\\n\" }
print <DATA>, tell DATA;
__END__
one
";
	place.file("input", "a:b\nc d\n");
	let lines = "-s|-ws|-sw|-s -w|-w -s --|-n -s|-w|-W|-X|-n|-p|-ni|-i.bak -p|-a|-an|-F:|-F: -l|-l|-l012 -0777 -n|-00|-g|-t|-T|-wT\
				 |-C|-CS|-c|-wc|-Dx|-x|-e 1|-E|-Mstrict|-mstrict|-S|-U|-v|-I /nowhere/x|-I/nowhere -s|--|-|-z|";
	let script = place.at("first.pl");
	for switches in lines.split('|') {
		for end in ["\n", "\r\n"] {
			let text = format!("#!/usr/bin/perl {switches}{end}{}", body.replace('\n', end));
			for arguments in
				[&["first.pl"][..], &["first.pl", "input"], &["first.pl", "-x=5", "-y", "--", "-q", "input"]]
			{
				fs::write(&script, &text).unwrap();
				// What `-i` writes is another file each time.
				place.file("input", "a:b\nc d\n");
				if !switches.contains('i') || arguments.len() == 1 {
					same(&place, PERL, arguments);
				}
			}
		}
	}
	fs::write(&script, "#!/usr/bin/perl -wd\nprint 1;\n").unwrap();
	let debugged = place.flashfork(&["clone", "t", "first.pl"]).current_dir(place.path()).output().unwrap();
	assert_eq!((debugged.status.code(), stdout(&debugged), stderr(&debugged).lines().count()), (Some(2), "", 1));
	assert_says(stderr(&debugged), "run perl itself");
	for other in [
		"#!/bin/sh\necho $0 $1",
		"#!/bin/echo one two\n",
		"#! /nowhere/program\n",
		"#!/bin/sh -- # perl -w\nprint $^W",
		"#!\nprint 1",
	] {
		fs::write(&script, other).unwrap();
		for arguments in [&["first.pl"][..], &["first.pl", "a b"]] {
			same(&place, PERL, arguments);
		}
	}
}

#[test]
fn perl_takes_several_pieces_of_code_and_no_options() {
	let place = warmed(PERL);
	for arguments in [
		&["-e", "print 1;", "-e", "print 2; warn", "a"][..],
		&["-e", "print \"@ARGV\"", "--", "-w"],
		&["-e", "print \"@ARGV\"", "-", "a"],
		&["-e", "open my $name, '/proc/self/comm'; print <$name>"],
		&["-e", "print join ',', grep !/integer/, keys %INC"],
		&["-e", "print defined $flashfork ? 1 : 0, <DATA>\n__END__\none\n"],
	] {
		same(&place, PERL, arguments);
	}
	let option = place.run(&["clone", "t", "-e", "print 1", "-w"]);
	assert_eq!((option.status.code(), stdout(&option), stderr(&option).lines().count()), (Some(2), "", 1));
	for name in ["a b.pl", "one\"quote.pl", "it's.pl", "ü.pl", "1", "#x"] {
		place.file(name, "warn __FILE__, ' ', $0; print +(caller 0)[1] // 'none'; die");
		same(&place, PERL, &[name]);
	}
	place.file("\"both \"", "print 1");
	let named = place.flashfork(&["clone", "t", "\"both \""]).current_dir(place.path()).output().unwrap();
	assert_eq!((named.status.code(), stdout(&named), stderr(&named).lines().count()), (Some(2), "", 1));
}

/// Perl ends with the number of the last error then, which depends on what its standard error is.
#[test]
fn perl_without_code_ends_as_ever() {
	let place = warmed(PERL);
	for streams in ["", "2> file", "2> /dev/null", "2>&1 | cat; exit 0", "< /dev/null > out 2> file", "2>&-"] {
		same_with(&place, PERL, streams, &["-e"]);
		same_with(&place, PERL, streams, &["-e", "1", "-e"]);
	}
	same(&place, PERL, &["-e"]);
}

/// They see the lines that the program has, before perl does.
#[test]
fn perl_has_source_filters_over_what_it_reads() {
	let place = warmed(PERL);
	let line = "package Line; use Filter::Util::Call; sub import { filter_add(sub { my $s = filter_read(); s/one/1/g; $s }) } 1;";
	place.file("Line.pm", line);
	let block = line.replace("Line", "Block").replace("filter_read()", "filter_read(9)");
	place.file("Block.pm", block);
	for filter in ["Line", "Block"] {
		let program = format!("use lib '.'; use {filter};\nprint 'one', __LINE__; warn;\nprint 'one';\n__END__\none\n");
		place.file("program", &program);
		same(&place, PERL, &["program"]);
		same(&place, PERL, &["-e", &program]);
		same_with(&place, PERL, "<program", &["-"]);
	}
}

#[test]
fn a_limit_on_the_size_of_files_is_told() {
	let place = Place::new();
	let limited = |command: &str| place.sh(&format!("ulimit -f 0; exec {} {command}", flashfork())).output().unwrap();
	let warmed = limited(&format!("warm t -- {PERL} -e 1"));
	assert_eq!(warmed.status.code(), Some(1));
	assert_says(stderr(&warmed), "ulimit -f");
	place.warm(&[PERL, "-e", "1"]);
	let clone = limited("clone t -e 'print 1'");
	assert_eq!((clone.status.code(), stdout(&clone), stderr(&clone)), (Some(0), "1", ""), "a clone holds no copy");
}

#[test]
fn perl_is_warmed_by_a_script_too_and_failures_are_told() {
	let place = Place::new();
	let script = place.file("warm.pl", "our $kept = 'kept'; 1;");
	place.warm(&[PERL, &script]);
	assert_eq!(stdout(&place.run(&["clone", "t", "-e", "print $main::kept"])), "kept");
	let failed = place.run(&["warm", "u", "--", PERL, "-e", "die 'no luck'"]);
	assert!(
		stderr(&failed).contains("no luck") && stderr(&failed).contains("before it was ready"),
		"{}",
		stderr(&failed)
	);
}

const RUBY: &str = "/usr/bin/ruby";

#[test]
fn ruby_runs_a_program_as_ever() {
	let place = Place::new();
	let warmed = place.warm(&[RUBY, "-rjson", "-rsecurerandom", "-e", "puts 'warm'; $kept = rand"]);
	assert!(stdout(&warmed).starts_with("warm\nt is ready to run Ruby"), "{}", stdout(&warmed));
	fs::write(
		place.at("show.rb"),
		"require 'json'
puts \"#{ARGV} #{$0} #{__FILE__} #{__FILE__ == $0} #{__dir__} #{ENV['ONE']} #{self} #{Thread.new { 5 }.value}\"
puts JSON.generate([1]), ENV.keys.grep(/LD_PRELOAD|FLASHFORK/), `echo $ONE`, DATA.read, binding.local_variables.inspect
at_exit { puts 'end' }
warn 'error'
pid = fork { exit! 7 }
Process.wait(pid)
p $?.exitstatus
def f(x) = raise('dead')
f(1) if ARGV.size > 1
exit 3 if ARGV.size > 0
__END__
one
two
",
	)
	.unwrap();
	for arguments in [&["show.rb"][..], &["show.rb", "a"], &["show.rb", "a", "b"], &["-e", "p $0, ARGV", "x y"]] {
		same(&place, RUBY, arguments);
	}
	assert_eq!(stdout(&from_input(&place, b"puts \"#{$0} in\"")), "- in\n");
	differ(&place, "p rand");
	signals_end_it(&place, "puts 'on'; STDOUT.flush; sleep 1000");
	differ(&place, "p SecureRandom.hex");
	let missing = place.run(&["clone", "t", "nowhere.rb"]);
	assert!(stderr(&missing).contains("nowhere.rb") && !missing.status.success());
}

#[test]
fn ruby_writes_lines_at_once_on_its_callers_terminal() {
	let place = Place::new();
	for warmed in [true, false] {
		place.written(warmed, &format!("{} warm t -- {RUBY} -e 1", flashfork()));
		for terminal in [true, false] {
			let code = "-e 'puts 1; STDERR.syswrite 2; p STDOUT.sync'";
			let clone = place.written(terminal, &format!("{} clone t {code}", flashfork()));
			assert_eq!(clone, place.written(terminal, &format!("{RUBY} {code}")));
		}
		place.remove();
	}
}

#[test]
fn ruby_tells_of_errors_as_ever() {
	let place = warmed(RUBY);
	place.file("syntax.rb", "puts 1\ndef f(\n");
	let cause = "def f\n  raise 'a'\nrescue\n  raise 'b'\nend\nf\n";
	place.file("cause.rb", cause);
	for arguments in [
		&["syntax.rb"][..],
		&["cause.rb"],
		&["nowhere.rb"],
		&["."],
		&["-e"],
		&["-e", "def f("],
		&["-e", "1 = 2"],
		&["-e", "raise 'x'"],
		&["-e", "nil.nothing"],
		&["-e", cause],
		&["-e", "def f = raise(Interrupt)\nf"],
		&["-e", "Process.kill(:INT, $$); sleep 9"],
		&["-e", "Process.kill(:TERM, $$); sleep 9"],
		&["-e", "at_exit { p $!.class }; exit 3"],
	] {
		same(&place, RUBY, arguments);
	}
	same_with(&place, RUBY, "<cause.rb", &["-"]);
	place.file("data.rb", "p DATA.lineno, DATA.gets, DATA.lineno\n__END__\none\n");
	same(&place, RUBY, &["data.rb"]);
}

#[test]
fn ruby_reads_on_behind_a_program_and_finds_its_end_as_the_parser_does() {
	let place = warmed(RUBY);
	for program in [
		"puts 1; puts $stdin.read\n__END__\nrest\n",
		"p DATA.lineno, DATA.gets, DATA.read, $stdin.read\n__END__\nrest\nmore\n",
		"puts <<__END__\nhere\n__END__\np defined?(DATA), $stdin.read\n",
		"puts <<__END__\nhere\n__END__\n",
		"=begin\n__END__\n=end\np defined?(DATA), DATA.read\n__END__\nrest\n",
		"p '\n__END__\n', defined?(DATA)\n",
		"# encoding: iso-8859-1\np __ENCODING__, DATA.read\n__END__\né\n",
		"\u{feff}p __LINE__, DATA.read\n__END__\nrest",
		"DATA.nothing\n__END__\n",
		"p 1 # no line ends here",
	] {
		place.file("program", program);
		same(&place, RUBY, &["program"]);
		for streams in ["<program", "</dev/null"] {
			same_with(&place, RUBY, streams, &[]);
			same_with(&place, RUBY, streams, &["program", "a"]);
		}
		same_piped(&place, RUBY, program);
	}
}

#[test]
fn ruby_does_what_the_first_line_of_a_script_asks_for() {
	let place = warmed(RUBY);
	let script = place.at("first.rb");
	for line in ["", " -w", " -W", " -W0", " -W1", " -W2", "\r"] {
		let text =
			format!("#!/usr/bin/ruby{line}\nunused = 1; p $VERBOSE, Warning[:deprecated], __LINE__; warn 'told'\n");
		fs::write(&script, text).unwrap();
		same(&place, RUBY, &["first.rb"]);
	}
	for line in ["#!/usr/bin/ruby -n", "#!/usr/bin/ruby -w -s", "#!/bin/sh"] {
		fs::write(&script, format!("{line}\nputs 1\n")).unwrap();
		let refused = place.flashfork(&["clone", "t", "first.rb"]).current_dir(place.path()).output().unwrap();
		let told = (refused.status.code(), stdout(&refused), stderr(&refused).lines().count());
		assert_eq!(told, (Some(2), "", 1), "{}", stderr(&refused));
	}
	for arguments in
		[&["-e", "p 1", "-e", "p 2; raise 'x'"][..], &["-e", "p ARGV", "--", "-x"], &["-e", "p ARGV", "-", "a"]]
	{
		same(&place, RUBY, arguments);
	}
}

/// As under `nohup`, or in the background of a script. Ruby handles these signals from its start on.
#[test]
fn signals_that_the_caller_ignores_are_seen_as_in_ruby_itself() {
	let place = Place::new();
	place.warm(&[RUBY, "-e", "trap('USR2') { puts 'warmed' }"]);
	let handlers = "all = %w[HUP INT QUIT TERM ALRM USR1]
all.each { |name| old = trap(name, 'DEFAULT'); p [name, old]; trap(name, old) if old == 'IGNORE' }
all.each { |name| begin; Process.kill(name, $$); sleep 0.01; rescue SignalException => e; p e; end }
puts 'alive'
";
	let output = |command: Command, all, code: &str| {
		let output = ignoring(command, all).args(["-e", code]).output().unwrap();
		outcome(&output)
	};
	let sets: [&'static [i32]; 3] =
		[&[], &[libc::SIGHUP], &[libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2]];
	for all in sets {
		let cold = output(Command::new(RUBY), all, handlers);
		assert!(cold.1.ends_with("alive\n"), "{cold:?}");
		for _ in 0..2 {
			assert_eq!(output(place.flashfork(&["clone", "t"]), all, handlers), cold, "{all:?}");
		}
		let warmed = output(place.flashfork(&["clone", "t"]), all, "Process.kill(:USR2, $$); sleep 0.01");
		assert_eq!(warmed, (Some(0), "warmed\n".to_owned(), String::new()), "a trap of the warm-up stays");
	}
}

#[test]
fn ruby_reads_a_program_from_a_pipe_that_has_a_name() {
	let place = warmed(RUBY);
	let mut clone = place.flashfork(&["clone", "t", "/dev/stdin"]).start_talk();
	clone.stdin.take().unwrap().write_all("puts \"#{$0} é\"".as_bytes()).unwrap();
	assert_eq!(stdout(&clone.wait_with_output().unwrap()), "/dev/stdin é\n");
}

#[test]
fn ruby_has_pipes_in_place_of_closed_streams() {
	let place = warmed(RUBY);
	for streams in [">&-", "<&-", "2>&-", "<&- >&- 2>&-"] {
		for code in ["p 1", "warn 1; p 2", "p $stdin.read"] {
			same_with(&place, RUBY, streams, &["-e", code]);
		}
	}
}

#[test]
fn there_is_no_clone_once_libraries_of_perl_and_ruby_or_programs_have_changed() {
	let changed = |place: &Place, file: &str, arguments: &[&str]| {
		let run = || place.run(&[&["clone", "t"], arguments].concat());
		assert_eq!(stderr(&run()), "", "{file}");
		let path = place.at(file);
		let mut bytes = fs::read(&path).unwrap();
		bytes.push(b'\n');
		// Another file of that name: a program that runs can't be written to.
		fs::remove_file(&path).unwrap();
		fs::write(&path, bytes).unwrap();
		fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
		let after = run();
		let said = line(&after);
		assert!(said.contains(file) && said.contains("changed since"), "{said}");
		assert_eq!(place.run(&[&["clone", "--fresh", "t"], arguments].concat()).status.code(), Some(0));
	};
	let perl = Place::new();
	fs::write(perl.path().join("Mine.pm"), "package Mine; 1;\n").unwrap();
	perl.warm(&["perl", &format!("-I{}", perl.path().display()), "-MMine", "-e", "1"]);
	changed(&perl, "Mine.pm", &["-e", "1"]);
	let ruby = Place::new();
	fs::write(ruby.path().join("mine.rb"), "MINE = 1\n").unwrap();
	ruby.warm(&["ruby", &format!("-I{}", ruby.path().display()), "-rmine", "-e", "1"]);
	changed(&ruby, "mine.rb", &["-e", "1"]);
	let place = Place::new();
	let program = place.program("small", "int main(void) { return 0; }");
	place.warm(&[&program]);
	changed(&place, "small", &[]);
}

/// They would count for the warm-up alone, and the program would run otherwise than in the interpreter itself.
#[test]
fn options_that_clones_could_not_follow_are_refused() {
	for command in [[PERL, "-d", "-e", "1"], [PERL, "-S", "-e", "1"], [RUBY, "-x", "-e", "1"], [RUBY, "-S", "-e", "1"]]
	{
		let place = Place::new();
		let refused = place.run(&[&["warm", "t", "--"][..], &command].concat());
		let said = stderr(&refused);
		assert!(refused.status.code() == Some(1) && said.contains("start it without them"), "{command:?}: {said}");
		assert_eq!(place.run(&["clone", "t", "-e", "1"]).status.code(), Some(1));
	}
}

/// The interpreter has read them when its template was started.
#[test]
fn variables_that_an_interpreter_has_read_already_are_told_in_one_line() {
	let all = [(PERL, "PERL5LIB"), (PERL, "PERL_HASH_SEED"), (RUBY, "RUBY_THREAD_VM_STACK_SIZE"), (RUBY, "LC_ALL")];
	for (interpreter, variable) in all {
		let place = warmed(interpreter);
		let clone = |value| {
			let mut clone = place.flashfork(&["clone", "t", "-e", "print 1"]);
			clone.env(variable, value).output().unwrap()
		};
		assert_eq!((stdout(&clone("")), stderr(&clone(""))), ("1", ""));
		let told = clone("/nowhere");
		assert!(stdout(&told) == "1" && stderr(&told).contains(variable), "{}", stderr(&told));
		assert_eq!(stderr(&told).lines().count(), 1);
	}
}

/// FindBin knows the program that was there when it was loaded.
#[test]
fn perl_finds_the_directory_of_the_clones_own_script() {
	let place = Place::new();
	fs::create_dir_all(place.at("bin/lib")).unwrap();
	place.file("bin/lib/Own.pm", "package Own; 1");
	let script = "use FindBin; use lib \"$FindBin::Bin/lib\"; use Own; print \"$FindBin::Bin $FindBin::Script $0\";";
	place.file("bin/script", script);
	place.warm(&[PERL, "-MFindBin", "-MEnglish", "-e", "1"]);
	for arguments in
		[&["bin/script", "a"][..], &["-e", "use FindBin; use English; print \"$FindBin::Bin $PROGRAM_NAME\""]]
	{
		same(&place, PERL, arguments);
	}
	same_with(&place, PERL, "<bin/script 2>&1", &["-"]);
}

/// The warm-up's.
#[test]
fn perl_is_warmed_by_a_script_that_knows_its_name() {
	for taint in ["-t", "-T"] {
		let place = Place::new();
		fs::create_dir_all(place.at("bin/lib")).unwrap();
		place.file("bin/lib/Own.pm", "package Own; 1");
		let script = place.at("bin/script");
		let text = "use FindBin; use lib map { /(.*)/ } \"$FindBin::Bin/lib\"; use Own; our $name = $0; 1";
		fs::write(&script, text).unwrap();
		let script = script.to_str().unwrap();
		place.warm(&[PERL, taint, script]);
		assert_eq!(stdout(&place.run(&["clone", "t", "-e", "print $main::name"])), script);
		let comes_from = from_input(&place, b"print $0, <STDIN>;\n__END__\nrest\n");
		assert_eq!(both(&comes_from), ("-rest\n", ""));
	}
}

/// Test2 has made copies of the streams that the warm-up had, and told of failures in the template's process alone.
#[test]
fn perl_tests_run_in_clones_of_a_perl_that_has_their_modules() {
	let programs = [
		"use Test::More; ok 1, 'one'; diag 'diag'; subtest s => sub { plan tests => 1; ok 1 }; is 1, 2, 'two'; done_testing",
		"use Test::More tests => 2; ok 1; TODO: { local $TODO = 'later'; ok 0 }",
		"use Test::More tests => 2; ok 1; die 'dead'",
		"use Test::More skip_all => 'no'",
		"print 1",
	];
	for modules in ["-mTest::More", "-MTest2::API"] {
		let place = Place::new();
		place.warm(&[PERL, modules, "-e", "1"]);
		for program in programs {
			place.file("test.t", program);
			same(&place, PERL, &["test.t"]);
		}
	}
}
