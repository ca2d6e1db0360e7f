//! Warms Python with some modules once, then runs a job in each of three clones at a time, and adds up what they print.
//!
//!     cargo run -p flashfork-templates --example jobs -- target/debug/libflashfork_preload.so

use flashfork_templates::{Directory, Template};
use std::{
	error::Error,
	fs::File,
	io::{Read, pipe},
	os::fd::AsFd,
};

const JOB: &str = "import sys; print(int(decimal.Decimal(sys.argv[1]) ** 2))";

fn main() -> Result<(), Box<dyn Error>> {
	let shim = std::env::args_os().nth(1).ok_or("give the path of libflashfork_preload.so")?;
	let runtime = std::env::var_os("XDG_RUNTIME_DIR");
	let names = Directory::open(Directory::place(runtime.as_ref().map(AsRef::as_ref)))?;
	// What the warm-up binds in builtins, clones find.
	let code = "import builtins, decimal; builtins.decimal = decimal";
	let name = format!("jobs-{}", std::process::id());
	let warm = Template::warm(&names, name.parse()?, "python3", shim).args(["-c", code]).envs(std::env::vars_os());
	let facts = warm.start()?.wait()?;
	println!("process {} waits, {} KB of it sealed", facts.pid, facts.sealed >> 10);

	let template = Template::find(&names, name.parse()?)?;
	let null = File::open("/dev/null")?;
	let mut jobs = Vec::new();
	for number in 1..=3 {
		let (output, theirs) = pipe()?;
		let run = template.run().args(["-c", JOB, &number.to_string()]).envs(std::env::vars_os());
		let clone = run.streams([Some(null.as_fd()), Some(theirs.as_fd()), Some(std::io::stderr().as_fd())]).start()?;
		jobs.push((clone, output));
	}
	let mut sum = 0;
	for (clone, mut output) in jobs {
		let mut printed = String::new();
		output.read_to_string(&mut printed)?;
		println!("clone {} has ended: {}", clone.pid(), clone.wait()?);
		sum += printed.trim().parse::<u64>()?;
	}
	println!("the sum is {sum}");
	template.remove()?;
	Ok(())
}
