//! `flashfork vm`: virtual machines, through their daemon.

mod agent;
mod args;
mod client;
mod console;
mod cp;
mod daemon;
mod disks;
mod exec;
mod names;
mod places;
mod port;
pub mod show;
mod terminal;
mod tree;

pub use args::VmArgs;

use args::{
	CreateArgs, DEFAULT_TEMPLATE, DirectoryArgs, ForkArgs, FromDirArgs, ImageCommand, RunArgs, TemplateCommand,
	VmCommand,
};
use client::Client;
use flashfork_proto::{
	api::{self, CloneState, CreateClones, CreateTemplate, ForkClone, LoadTemplate, Ready, SaveTemplate, Template},
	shape::{Pages, Shape},
};
use flashfork_terminal::{
	CliError,
	output::{self, say},
	places as programs,
	progress::waiting,
};
use places::Copy;
use serde::Serialize;
use std::{
	os::unix::process::CommandExt,
	path::{Path, PathBuf},
	process::ExitCode,
	time::{Duration, Instant},
};

const BOOTING: &str = "booting the guest; the first time its kernel is downloaded";

/// How often it is asked for what somebody else makes.
const AGAIN: Duration = Duration::from_millis(100);

pub fn main(args: &VmArgs) -> Result<ExitCode, CliError> {
	let socket = absolute(&args.socket.clone().unwrap_or_else(programs::vm_socket))?;
	let print = Printer { json: args.json };
	if let VmCommand::Cp(args) = &args.command {
		// Before anything else is wrong.
		args.copy();
	}
	let client = match &args.command {
		VmCommand::Serve(serve) => {
			let mut command = daemon::command(&socket)?;
			let error = command.arg("--pool").arg(serve.pool.to_string()).exec();
			return Err(CliError::file("start", programs::monitor("flashfork-vmd")?)(error));
		}
		VmCommand::Image(ImageCommand::FromDir(args)) => return image(args),
		VmCommand::Stop => return stop(&socket),
		command if makes_something(command) => daemon::connect(&socket)?,
		command => match daemon::find(&socket)? {
			Some(client) => client,
			None => return without_daemon(command, &socket, &print),
		},
	};
	match &args.command {
		VmCommand::Run(run) => return run_once(&client, &socket, run),
		VmCommand::Template(command) => return template(&client, command, &print),
		VmCommand::Clone(clone) => {
			let request = CreateClones {
				count: clone.count,
				name: clone.name.clone(),
				job: clone.job.clone(),
				wait: !clone.no_wait,
				forks: clone.forks,
				disks: clone.disks.request()?,
			};
			let clones: Vec<api::Clone> = client.post(&format!("/v1/templates/{}/clones", clone.template), &request)?;
			print.print(&clones, || show::clones(&clones))?;
		}
		VmCommand::Exec(args) => return exec::exec(&client, &args.name, &args.command, args.terminal, None),
		VmCommand::Port(args) => return port::port(&client, &args.name, &args.ports, &print),
		VmCommand::Cp(args) => return cp(&client, &args.copy()),
		VmCommand::Console(args) => return console::console(&client, &args.name),
		VmCommand::Rollback(args) => {
			let clone: api::Clone = client.post(&format!("/v1/clones/{}/rollback", args.name), &())?;
			print.print(&clone, || show::clones(std::slice::from_ref(&clone)))?;
		}
		VmCommand::Fork(args) => {
			let path = format!("/v1/clones/{}/fork", args.clone);
			let request = fork(args)?;
			let forked: api::Forked = waiting("copying what the clone has written", || client.post(&path, &request))?;
			print.print(&forked, || show::forked(&args.clone, &forked))?;
		}
		VmCommand::Ls(args) => {
			let mut clones: Vec<api::Clone> = client.get("/v1/clones")?;
			if args.tree {
				let templates: Vec<Template> = client.get("/v1/templates")?;
				tree::prune(&templates, &mut clones, args.all);
				let both = serde_json::json!({ "templates": templates, "clones": clones });
				print.print(&both, || tree::show(&templates, &clones))?;
			} else {
				clones.retain(|clone| args.all || clone.state != CloneState::Ended);
				print.print(&clones, || show::clones(&clones))?;
			}
		}
		VmCommand::Rm(args) if args.all => {
			for clone in client.get::<Vec<api::Clone>>("/v1/clones")? {
				client.if_there("DELETE", &format!("/v1/clones/{}", clone.name))?;
			}
		}
		VmCommand::Rm(args) => return Ok(remove("clones", &args.names, Some(&client))),
		VmCommand::Stats => {
			let stats: api::Stats = client.get("/v1/stats")?;
			print.print(&stats, || show::stats(&stats))?;
		}
		VmCommand::Doctor => {
			let host: api::Host = waiting("trying to boot guests", || client.post("/v1/host", &()))?;
			print.print(&host, || show::host(&host))?;
		}
		VmCommand::Serve(_) | VmCommand::Image(_) | VmCommand::Stop => {}
	}
	Ok(ExitCode::SUCCESS)
}

/// Whether a daemon has something to keep afterwards. For the others none is started.
fn makes_something(command: &VmCommand) -> bool {
	match command {
		// Where there is no daemon there is only the template made by itself.
		VmCommand::Run(run) => run.template == DEFAULT_TEMPLATE,
		VmCommand::Template(command) => matches!(command, TemplateCommand::Create(_) | TemplateCommand::Load(_)),
		_ => false,
	}
}

/// What a command says where no daemon runs: there are no templates and clones.
fn without_daemon(command: &VmCommand, socket: &Path, print: &Printer) -> Result<ExitCode, CliError> {
	let missing = |kind, name: &str| Err(CliError::Unable(no_such(kind, name)));
	match command {
		VmCommand::Ls(args) if args.tree => {
			let none: [(); 0] = [];
			print.print(&serde_json::json!({ "templates": none, "clones": none }), || tree::show(&[], &[]))?;
		}
		VmCommand::Ls(_) => print.print(&[(); 0], || show::clones(&[]))?,
		VmCommand::Template(TemplateCommand::Ls) => print.print(&[(); 0], || show::templates(&[]))?,
		VmCommand::Doctor => {
			let host = host()?;
			print.print(&host, || show::host(&host))?;
		}
		VmCommand::Rm(args) => return Ok(remove("clones", &args.names, None)),
		VmCommand::Template(TemplateCommand::Rm(args)) => return Ok(remove("templates", &args.names, None)),
		VmCommand::Exec(args) => return missing("clone", &args.name),
		VmCommand::Port(args) => return missing("clone", &args.name),
		VmCommand::Cp(args) => return missing("clone", args.copy().clone_name()),
		VmCommand::Console(args) | VmCommand::Rollback(args) => return missing("clone", &args.name),
		VmCommand::Run(args) => return missing("template", &args.template),
		VmCommand::Clone(args) => return missing("template", &args.template),
		VmCommand::Fork(args) => return missing("clone", &args.clone),
		VmCommand::Template(TemplateCommand::Save(args)) => return missing("template", &args.name),
		_ => return Err(CliError::Unable(no_daemon(socket))),
	}
	Ok(ExitCode::SUCCESS)
}

fn no_daemon(socket: &Path) -> String {
	format!("no VM daemon runs at {}: `flashfork vm run` and `vm template create` start one", socket.display())
}

fn no_such(kind: &str, name: &str) -> String {
	format!("there is no {kind} {name}: no VM daemon runs")
}

fn stop(socket: &Path) -> Result<ExitCode, CliError> {
	if !daemon::stop(socket)? {
		say(&no_daemon(socket))?;
	}
	Ok(ExitCode::SUCCESS)
}

/// Removes what can be removed, and says what can't. `kinds` are `clones` or `templates`.
fn remove(kinds: &str, names: &[String], client: Option<&Client>) -> ExitCode {
	let mut code = ExitCode::SUCCESS;
	for name in names {
		let result = match client {
			Some(client) => client.delete(&format!("/v1/{kinds}/{name}")),
			None => Err(CliError::Unable(no_such(kinds.trim_end_matches('s'), name))),
		};
		if let Err(e) = result {
			eprintln!("flashfork: {e}");
			code = ExitCode::FAILURE;
		}
	}
	code
}

/// What KVM can do here, by trying, with a daemon gone afterwards.
pub fn host() -> Result<api::Host, CliError> {
	let daemon = daemon::Private::start()?;
	waiting("trying to boot guests", || daemon.client.post("/v1/host", &()))
}

struct Printer {
	json: bool,
}

impl Printer {
	fn print(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), CliError> {
		if self.json {
			return say(&serde_json::to_string_pretty(value).map_err(|e| CliError::Unable(e.to_string()))?);
		}
		say(&text())
	}
}

fn template(client: &Client, command: &TemplateCommand, print: &Printer) -> Result<ExitCode, CliError> {
	let template: Template = match command {
		TemplateCommand::Create(args) => create(client, &request(args)?)?,
		TemplateCommand::Save(DirectoryArgs { name, directory }) => {
			let directory = absolute(directory)?;
			waiting("saving", || client.post(&format!("/v1/templates/{name}/save"), &SaveTemplate { directory }))?
		}
		TemplateCommand::Load(DirectoryArgs { name, directory }) => {
			let request = LoadTemplate { name: name.clone(), directory: absolute(directory)? };
			waiting("loading", || client.post("/v1/templates/load", &request))?
		}
		TemplateCommand::Ls => {
			let templates: Vec<Template> = client.get("/v1/templates")?;
			print.print(&templates, || show::templates(&templates))?;
			return Ok(ExitCode::SUCCESS);
		}
		TemplateCommand::Rm(args) => return Ok(remove("templates", &args.names, Some(client))),
	};
	print.print(&template, || show::templates(std::slice::from_ref(&template)))?;
	Ok(ExitCode::SUCCESS)
}

fn fork(args: &ForkArgs) -> Result<ForkClone, CliError> {
	Ok(ForkClone {
		count: args.count.unwrap_or(u32::from(args.template.is_none() || args.name.is_some())),
		name: args.name.clone(),
		job: args.job.clone(),
		wait: !args.no_wait,
		template: args.template.clone(),
		now: args.now,
		disks: args.disks.request()?,
	})
}

fn request(args: &CreateArgs) -> Result<CreateTemplate, CliError> {
	let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
	let ready = match &args.ready_command {
		Some(command) => Ready::Command(vec!["/bin/sh".into(), "-c".into(), command.clone()]),
		None if args.ready_signal => Ready::Signal,
		None => Ready::Agent,
	};
	Ok(CreateTemplate {
		name: args.name.clone(),
		shape: Shape {
			memory_mib: u32::try_from(args.memory.0 >> 20).unwrap_or(u32::MAX),
			vcpus: args.cpus,
			pages: if args.huge { Pages::Huge } else { Pages::Small },
			disk: args.disk.is_some(),
			disk_slots: args.disk_slots,
		},
		kernel: path(&args.kernel)?,
		initramfs: path(&args.initramfs)?,
		tiny: None,
		append: args.append.clone(),
		disk: path(&args.disk)?,
		disk_limit_mib: args.disk_limit.0.div_ceil(1 << 20),
		disk_serial: args.disk_serial.clone(),
		disk_read_only: args.disk_read_only,
		ready,
		max_clones: args.max_clones,
		timeout_s: args.timeout,
	})
}

fn create(client: &Client, request: &CreateTemplate) -> Result<Template, CliError> {
	waiting(BOOTING, || client.post("/v1/templates", request))
}

fn cp(client: &Client, copy: &Copy<'_>) -> Result<ExitCode, CliError> {
	match copy {
		Copy::FromGuest { clone, from, to } => cp::from_guest(client, clone, from, to),
		Copy::ToGuest { clone, from, to } => cp::to_guest(client, clone, from, to),
	}
}

/// One clone, one command, and away with the clone.
fn run_once(client: &Client, socket: &Path, args: &RunArgs) -> Result<ExitCode, CliError> {
	// Of any other name the daemon says that there is no such template.
	if args.template == DEFAULT_TEMPLATE {
		default_template(client)?;
	}
	// From before the clone is there nothing but SIGKILL ends this process and leaves the clone.
	let signals = exec::catch()?;
	output::outlive_the_pipe();
	let disks = args.disks.request()?;
	let request = CreateClones { count: 1, name: None, job: String::new(), wait: true, forks: 0, disks };
	let clones: Vec<api::Clone> = client.post(&format!("/v1/templates/{}/clones", args.template), &request)?;
	let clone = clones.first().ok_or_else(|| CliError::Unable("the VM daemon made no clone".into()))?;
	let result = exec::exec(client, &clone.name, &args.command, args.terminal, Some(signals));
	if let Err(why) = away(socket, clone) {
		let name = &clone.name;
		return Err(CliError::Unable(format!("{name} may be left; `flashfork vm rm {name}` removes it: {why}")));
	}
	result.inspect_err(output::end_if_closed)
}

/// Removes the clone. If its daemon has ended, the next one has it.
fn away(socket: &Path, clone: &api::Clone) -> Result<(), CliError> {
	let (start, path) = (Instant::now(), format!("/v1/clones/{}", clone.name));
	let attempt = || {
		// Where nobody has anything left it is gone, too.
		let Some(client) = daemon::find(socket)? else { return Ok(()) };
		let found = client.if_there("GET", &path)?.and_then(|found| serde_json::from_slice::<api::Clone>(&found).ok());
		// Not one that was given its name since.
		if found.is_some_and(|found| found.made_ns == clone.made_ns) { client.delete(&path) } else { Ok(()) }
	};
	loop {
		match attempt() {
			Err(_) if start.elapsed() < daemon::START => std::thread::sleep(AGAIN),
			done => return done,
		}
	}
}

/// Makes the default template, or waits for who makes it, and takes over if that one gives up.
fn default_template(client: &Client) -> Result<(), CliError> {
	let request = serde_json::json!({
		"name": DEFAULT_TEMPLATE,
		"shape": Shape { memory_mib: 256, vcpus: 1, pages: Pages::Small, disk: false, disk_slots: 1 },
	});
	let is_there = || -> Result<bool, CliError> {
		let templates: Vec<Template> = client.get("/v1/templates")?;
		Ok(templates.iter().any(|template| template.name == DEFAULT_TEMPLATE))
	};
	if is_there()? {
		return Ok(());
	}
	waiting(BOOTING, || {
		while !client.make("/v1/templates", &request)? && !is_there()? {
			std::thread::sleep(AGAIN);
		}
		Ok(())
	})
}

fn image(args: &FromDirArgs) -> Result<ExitCode, CliError> {
	let size = args.size.map(|size| size.0.div_ceil(1 << 20));
	waiting("making the image", || flashfork_image::disk::from_dir(&args.directory, &args.image, size))
		.map_err(|e| CliError::Unable(e.to_string()))?;
	Ok(ExitCode::SUCCESS)
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
	std::path::absolute(path).map_err(CliError::file("find", path))
}

#[cfg(test)]
mod tests {
	use super::{disks::DiskArgs, *};

	#[test]
	fn a_fork_that_only_keeps_a_template_makes_no_clone_unless_that_is_named() {
		let count = |template: Option<&str>, name: Option<&str>, count| {
			let [template, name] = [template, name].map(|name| name.map(str::to_owned));
			let (clone, job) = ("web-1".into(), String::new());
			let disks = DiskArgs { disks: Vec::new(), disk_limit: "1G".parse().unwrap() };
			fork(&ForkArgs { clone, count, name, job, no_wait: false, disks, template, now: false }).unwrap().count
		};
		assert_eq!(count(None, None, None), 1);
		assert_eq!(count(Some("kept"), None, None), 0);
		assert_eq!(count(Some("kept"), Some("named"), None), 1);
		assert_eq!(count(Some("kept"), None, Some(3)), 3);
	}
}
