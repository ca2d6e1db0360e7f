//! `bench cluster`: what it costs that a function is warm at another node, and what comes of calls and events when
//! parts of a cluster fail.
//!
//! Three NATS servers and four nodes are each in a network namespace, with a link to a switch ([`network`]). Calls are
//! made by HTTP where a function is warm and at another node, and without HTTP, by the message that this one would send
//! ([`wire`]); NATS's own request and reply on the same way is the floor, and Ray stands beside it. Then nodes, servers
//! and links fail under load: each request is counted by what became of it, each accepted event by its results.

mod faults;
mod health;
mod http;
mod network;
mod ray;
mod report;
mod rounds;
mod site;
mod tally;
mod wire;

use crate::{prelude::*, subjects::command::last_line};
pub use faults::Fault;
use rounds::Function;
use site::Site;

pub const EXPERIMENT: &str = "cluster";

/// The node on whose machine who measures is, where functions are called that are warm at the first.
const CLIENT: usize = 1;

#[derive(Clone, clap::Args)]
#[command(after_help = "Example: flashfork bench cluster --python venv/bin/python --quick\n\
				  It needs root, nats-server, iproute2 and gcc. scripts/python-libraries lambda, in the source, makes an \
				  environment for --python, scripts/python-libraries ray one for --ray.")]
pub struct ClusterOptions {
	/// Python that functions run in: it has awslambdaric
	#[arg(long, value_name = "PYTHON", default_value = "python3")]
	pub python: PathBuf,

	/// Python that has Ray, to be measured beside
	#[arg(long, value_name = "PYTHON")]
	pub ray: Option<PathBuf>,

	/// Memory that the large function holds
	#[arg(long, default_value = "1G")]
	pub size: Size,

	/// Clients at a time, where there is more than one
	#[arg(long, value_name = "N", default_value_t = 16, value_parser = count(2..=256))]
	pub clients: u32,

	/// What fails [default: all]
	#[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
	pub faults: Option<Vec<Fault>>,

	/// Rounds of calls, and of what fails [default: as many as it takes, and 3]
	#[arg(long, value_name = "N", value_parser = count(1..))]
	pub rounds: Option<u32>,

	/// Fewer calls, and one round of what fails
	#[arg(long)]
	pub quick: bool,
}

impl ClusterOptions {
	fn effort(&self) -> Effort {
		match self.rounds {
			Some(rounds) => Effort { warm_up: 1, ..Effort::rounds(rounds as usize) },
			None if self.quick => Effort::precise(0.05, 6..=6, 45),
			None => Effort::precise(0.02, 20..=40, 420),
		}
	}

	fn rounds_of_faults(&self) -> u32 {
		self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
	}
}

impl Experiment for ClusterOptions {
	const NAME: &'static str = EXPERIMENT;
	const ABOUT: &'static str = "Functions on many machines: calls of what is warm at another node, and what becomes of calls and events when parts fail";
	const PAGE: fn(&Document) -> String = report::render_all;

	fn measure(&self, run: &mut Run) -> Result {
		run.begin("servers and nodes", 1);
		// Processes are started elsewhere; what is a mere name is looked up in PATH.
		let python = match self.python.components().count() {
			1 => self.python.clone(),
			_ => std::path::absolute(&self.python).or_cant("find Python")?,
		};
		if let Some(why) = lacks(&python) {
			let cure = "scripts/python-libraries lambda makes one that has all";
			return Err(unable!("{} lacks something: {why}; {cure}", self.python.display()));
		}
		let runtime = rounds::runtime()?;
		let command = run.here.command()?;
		let site = runtime.block_on(Site::start(command, python))?;
		for function in Function::all() {
			let bytes = if function.is_large() { self.size.0 } else { 0 };
			site.deploy(0, function.as_ref(), function == Function::Program, bytes)?;
		}
		run.step();
		let _inside = site.node(CLIENT).enter()?;
		rounds::measure(self, &site, &runtime, run)?;
		faults::measure(self, site, &runtime, run)
	}
}

/// Why functions can't be served.
fn lacks(python: &Path) -> Option<String> {
	match Command::new(python).args(["-c", "import awslambdaric"]).stdin(Stdio::null()).output() {
		Ok(output) if output.status.success() => None,
		Ok(output) => Some(last_line(&output.stderr, "it fails")),
		Err(error) => Some(error.to_string()),
	}
}
