//! All programs, started anew and cloned, in turn.

use std::net::TcpListener;

use super::{
	ThreadsOptions, memory,
	program::{self, Answer, Family, Program, Started},
	runs,
	server::Running,
};
use crate::{
	prelude::*,
	subjects::{command::last_line, guard::Guard, template},
};

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Way {
	/// Started anew.
	Anew,
	/// With what its runtime offers.
	Best,
	/// In a process that was started before, and runs it again and again (nailgun).
	Server,
	Clone,
	/// A clone of memory that is not sealed.
	#[strum(serialize = "clone-unsealed")]
	Unsealed,
}

#[derive(Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Measure {
	/// Request for a clone until it runs, in microseconds.
	Running,
	/// Request for a clone of a server until that has answered a request of HTTP.
	Served,
	/// Start of the command until its first answer.
	Answer,
	/// Until its end is seen.
	Whole,
	/// Bytes that a clone takes.
	Memory,
}

/// A program that is there, and how it can be run.
struct Subject {
	program: Program,
	/// With the bytes sealed of its template, if it has one.
	ways: Vec<(Way, Option<u64>)>,
	server: Option<Running>,
}

struct Place {
	flashfork: PathBuf,
	/// Names, scripts and archives.
	work: PathBuf,
	guard: Guard,
	/// Java's templates are connected to this, which accepts nobody: their clones find the connection at its end.
	waits: TcpListener,
}

pub fn measure(options: &ThreadsOptions, run: &mut Run) -> Result {
	let work = WorkDir::new(None)?;
	let waits = TcpListener::bind("127.0.0.1:0").or_cant("make a socket")?;
	let mut place =
		Place { flashfork: run.here.command()?, work: work.path().to_owned(), guard: Guard::start()?, waits };
	for (name, text) in program::SOURCES {
		std::fs::write(place.work.join(name), text).or_cant("write a program")?;
	}
	let programs = place.programs(options, run)?;
	run.begin("templates", programs.len() as u64);
	let mut subjects = Vec::new();
	for program in programs {
		run.go_on()?;
		subjects.extend(place.prepare(program, run)?);
		run.step();
	}
	let cells: Vec<(usize, Way)> = subjects
		.iter()
		.enumerate()
		.flat_map(|(index, subject)| subject.ways.iter().map(move |(way, _)| (index, *way)))
		.collect();
	let taken = run.sample("programs and their clones", options.effort(), cells.len(), 12, |cell, _| {
		let subject = &subjects[cells[cell].0];
		place.visit(&subject.program, cells[cell].1, subject.server.as_ref())
	});
	taken.keep(run, |cell, measure| {
		let (index, way) = cells[cell];
		let Subject { program, ways, .. } = &subjects[index];
		let sealed = ways.iter().find(|(known, _)| *known == way).and_then(|(_, sealed)| *sealed);
		let chosen = json!({ "measure": measure.as_ref(), "program": program.name });
		Row::of(way.as_ref(), "us", chosen).beside(json!({ "title": program.title, "sealed_bytes": sealed }))
	})?;
	place.alive(options, &subjects, run)
}

impl Place {
	fn programs(&self, options: &ThreadsOptions, run: &mut Run) -> Result<Vec<Program>> {
		let mut all = Vec::new();
		if options.wants(Family::Java) {
			if self.compile() {
				let port = port_of(&self.waits)?;
				let heaps = each_once(options.heaps.iter().map(|Size(bytes)| (bytes >> 20) as u32));
				all.extend(program::all_java(heaps, &self.work, port));
			} else {
				let why = "javac and jar can't be run; Debian has them in openjdk-17-jdk-headless";
				run.leave_out("java", why);
			}
		}
		if options.wants(Family::Node) {
			all.push(program::node(&self.work, [free_port()?, free_port()?]));
		}
		if options.wants(Family::Python) {
			all.push(program::python(&self.work));
			all.extend(
				options.python.iter().map(|python| program::libraries(&python.display().to_string(), &self.work)),
			);
			all.extend(each_once(options.threads.iter().copied()).into_iter().map(program::threads));
		}
		Ok(all)
	}

	/// An archive, because AppCDS takes no classes from directories.
	fn compile(&self) -> bool {
		let run = |program: &str, arguments: &[&str]| {
			let mut command = Command::new(program);
			let command = command.args(arguments).current_dir(&self.work).stdin(Stdio::null());
			command.output().is_ok_and(|output| output.status.success())
		};
		run("javac", &["Main.java"]) && run("jar", &["cf", "main.jar", "Main.class"])
	}

	/// Makes what its runtime offers, and templates of it; none of a program that can't be run.
	fn prepare(&mut self, program: Program, run: &mut Run) -> Result<Option<Subject>> {
		let mut ways = Vec::new();
		if !program.anew.is_empty() {
			if let Err(error) = self.visit(&program, Way::Anew, None) {
				let why = format!("it can't be run ({error}); {}", program.cure);
				run.leave_out(program.name, why);
				return Ok(None);
			}
			ways.push((Way::Anew, None));
		}
		if let Some(best) = &program.best {
			let cell = format!("{} with {}", program.name, best.title);
			match self.make_best(&program) {
				Ok(sealed) if self.visit(&program, Way::Best, None).is_ok() => ways.push((Way::Best, sealed)),
				Ok(_) => run.leave_out(cell, "it does not run so"),
				Err(why) => run.leave_out(cell, why),
			}
		}
		let mut server = None;
		if let Some(known) = &program.server {
			match Running::start(known, &self.work, &mut self.guard) {
				Ok(running) if self.visit(&program, Way::Server, Some(&running)).is_ok() => server = Some(running),
				_ => run.leave_out(format!("{} by a server", program.name), known.cure),
			}
		}
		ways.extend(server.as_ref().map(|_| (Way::Server, None)));
		let kinds = [(Way::Clone, true), (Way::Unsealed, program.unsealed)];
		for (way, _) in kinds.into_iter().filter(|(_, wanted)| *wanted) {
			let engine = (way == Way::Unsealed).then_some(("FLASHFORK_ENGINE", "fork"));
			let threads = ["--threads", "--ready", &program.ready];
			match self.warm(&name_of(&program, way), &threads, engine, &program.warmed)? {
				Ok(sealed) => ways.push((way, Some(sealed))),
				Err(why) => run.leave_out(format!("{} {}", program.name, way.as_ref()), why),
			}
			// Its port is taken.
			if let Answer::Http(_) = program.answer {
				break;
			}
		}
		Ok(Some(Subject { program, ways, server }))
	}

	/// Bytes that are sealed, of what is a template.
	fn make_best(&mut self, program: &Program) -> Result<Option<u64>, String> {
		let Some(best) = &program.best else { return Ok(None) };
		let (variables, command) = &best.prepare;
		let mut prepare = runs::command(Path::new(&command[0]), &self.work);
		let prepared =
			prepare.args(&command[1..]).envs(variables.iter().copied()).output().map_err(|e| e.to_string())?;
		if !prepared.status.success() {
			return Err(last_line(&prepared.stderr, "it can't be prepared"));
		}
		let Started::Clone(command) = &best.started else { return Ok(None) };
		self.warm(&name_of(program, Way::Best), &[], None, command).map_err(|e| e.to_string())?.map(Some)
	}

	/// A template: bytes sealed of it, or why there is none.
	fn warm(
		&mut self,
		name: &str,
		options: &[&str],
		variable: Option<(&str, &str)>,
		command: &[String],
	) -> Result<Result<u64, String>> {
		let mut warm = runs::command(&self.flashfork, &self.work);
		warm.arg("warm").args(options).args([name, "--"]).args(command).envs(variable);
		let list = runs::command(&self.flashfork, &self.work);
		Ok(template::warm(warm, list, name, &mut self.guard)?.map(|template| template.sealed))
	}

	fn visit(&self, program: &Program, way: Way, server: Option<&Running>) -> Result<Visit<Measure>> {
		let what = format!("{} {}", program.name, way.as_ref());
		let port = match program.answer {
			Answer::Line => None,
			Answer::Http(ports) => Some(ports[usize::from(!matches!(way, Way::Anew | Way::Best | Way::Server))]),
		};
		let started = program.best.as_ref().map(|best| &best.started);
		let anew = match (way, started, server) {
			(Way::Anew, ..) => Some(&program.anew),
			(Way::Best, Some(Started::Command(command)), _) => Some(command),
			(Way::Server, _, Some(server)) => Some(server.ask()),
			_ => None,
		};
		let mut visit = Vec::new();
		let mut command;
		if let Some(words) = anew {
			command = runs::command(Path::new(&words[0]), &self.work);
			command.args(&words[1..]);
		} else {
			let name = name_of(program, way);
			let asked = runs::request(&self.work, &name, &program.arguments, port, &what)?;
			visit.push((Measure::Running, vec![asked.running]));
			visit.extend(asked.served.map(|served| (Measure::Served, vec![served])));
			command = runs::command(&self.flashfork, &self.work);
			command.args(["clone", &name]).args(&program.arguments);
		}
		let taken = runs::run(command, port, &what)?;
		visit.push((Measure::Answer, vec![taken.answer]));
		visit.extend(taken.whole.map(|whole| (Measure::Whole, vec![whole])));
		Ok(visit)
	}

	/// What clones take that are alive at a time.
	fn alive(&self, options: &ThreadsOptions, subjects: &[Subject], run: &mut Run) -> Result {
		let numbers = each_once(options.alive.iter().copied());
		// Clones that take arguments end by themselves.
		let stay = |subject: &&Subject| {
			subject.program.arguments.is_empty() && subject.ways.iter().any(|(way, _)| *way == Way::Clone)
		};
		let subjects: Vec<_> = subjects.iter().filter(stay).collect();
		run.begin("clones that are alive", (numbers.len() * subjects.len()) as u64);
		for subject in subjects {
			for count in &numbers {
				if run.interrupted() || run.deadline().left().is_zero() {
					return Ok(());
				}
				let Program { name, title, .. } = &subject.program;
				let bytes = memory::of_each(&self.work, name, *count)?;
				let chosen = json!({ "measure": Measure::Memory.as_ref(), "program": name, "alive": count });
				run.keep(Row::of(Way::Clone.as_ref(), "bytes", chosen).beside(json!({ "title": title })), bytes)?;
				run.step();
			}
		}
		Ok(())
	}
}

fn name_of(program: &Program, way: Way) -> String {
	match way {
		Way::Anew | Way::Clone => program.name.clone(),
		Way::Best | Way::Server | Way::Unsealed => format!("{}-{}", program.name, way.as_ref()),
	}
}

fn port_of(listener: &TcpListener) -> Result<u16> {
	listener.local_addr().map(|address| address.port()).or_cant("look at a socket")
}

fn free_port() -> Result<u16> {
	port_of(&TcpListener::bind("127.0.0.1:0").or_cant("make a socket")?)
}
