//! `flashfork doctor`: what this host can do.

use crate::vm;
use clap::Args;
use flashfork::{
	Capability, Host,
	code::{self, Verdict},
	cost::{CostModel, Engine, Memory},
};
use flashfork_proto::api::HostKvm;
use flashfork_terminal::{CliError, output::say, places};
use std::{path::Path, process::ExitCode};

/// Say what this host can do for flashfork, every capability tried for real
#[derive(Args)]
#[command(after_help = "Example: flashfork doctor --calibrate")]
pub struct DoctorArgs {
	/// Print JSON
	#[arg(long)]
	json: bool,
	/// Measure this host's fork costs (under two seconds) and keep them, so that `run` can compare with THP
	#[arg(long)]
	calibrate: bool,
}

pub fn main(args: &DoctorArgs) -> Result<ExitCode, CliError> {
	let host = Host::probe();
	let model = args.calibrate.then(CostModel::calibrate).transpose().map_err(|e| CliError::Unable(e.to_string()))?;
	let kept = model.as_ref().map_or(Ok(()), keep);
	let vm = vm::host();
	if args.json {
		let vm =
			vm.map_or_else(|e| serde_json::json!({ "kvm": null, "detail": e.to_string() }), |vm| serde_json::json!(vm));
		let value = serde_json::json!({ "schema": "flashfork.doctor/1", "host": host, "vm": vm, "cost_model": model });
		say(&format!("{value:#}"))?;
	} else {
		let kvm = vm.as_ref().ok().map(|vm| vm.kvm);
		let vm = vm.map_or_else(|e| format!("not tried: {e}"), |vm| vm::show::host(&vm).replace('\n', "\n      "));
		say(&text(&host, &vm, model.as_ref()))?;
		say(&format!("\n{}", conclusion(host.can_seal(), kvm)))?;
	}
	kept?;
	if host.can_seal() {
		return Ok(ExitCode::SUCCESS);
	}
	let missing: Vec<_> = host.capabilities.iter().filter(|c| c.needed && !c.available).map(|c| c.name).collect();
	Err(CliError::Unable(format!(
		"nothing can be sealed on this host: {} missing; forks under flashfork are plain and correct",
		missing.join(", ")
	)))
}

fn keep(model: &CostModel) -> Result<(), CliError> {
	let path = places::cost_model()?;
	if let Some(dir) = path.parent() {
		std::fs::create_dir_all(dir).map_err(CliError::file("create", dir))?;
	}
	model.save(&path).map_err(|e| CliError::Unable(e.to_string()))
}

/// What works here, and what to type.
fn conclusion(can_seal: bool, kvm: Option<HostKvm>) -> String {
	let programs = if can_seal {
		"programs can be sealed here, so that their forks are fast: type `flashfork run -- PROGRAM`"
	} else {
		"programs can't be sealed here, and their forks stay plain, until what is marked NO is cured"
	};
	let machines = match kvm {
		Some(HostKvm::Linux) => "virtual machines run, too: type `flashfork vm run -- echo hello`",
		Some(HostKvm::Untried) => "whether virtual machines run, `flashfork vm run -- echo hello` tells",
		Some(HostKvm::Tiny | HostKvm::None) => "virtual machines with Linux don't run on its KVM",
		None => "virtual machines were not tried",
	};
	format!("In short: {programs}; {machines}.")
}

/// A verdict first, then every capability, virtual machines, then the calibrated costs.
fn text(host: &Host, vm: &str, model: Option<&CostModel>) -> String {
	let missing = host.capabilities.iter().filter(|c| !c.available).count();
	let verdict = match (host.can_seal(), missing) {
		(true, 0) => "This host can do everything flashfork asks of one.".into(),
		(true, n) => {
			let are = if n == 1 { "is" } else { "are" };
			format!("This host can seal; {n} of {} capabilities {are} missing.", host.capabilities.len())
		}
		(false, _) => "Nothing can be sealed on this host.".into(),
	};
	let mut lines = vec![host.id.to_string(), verdict, String::new()];
	for Capability { name, available, detail, enables, without, cure, .. } in &host.capabilities {
		lines.push(format!("{} {name}: {detail}", if *available { "yes" } else { "NO " }));
		if *available {
			lines.push(format!("      for: {enables}"));
		} else {
			lines.push(format!("      lost: {without}"));
			lines.push(format!("      cure: {cure}"));
		}
	}
	lines.extend(preloaded());
	lines.extend([String::new(), format!("Virtual machines: {vm}")]);
	lines.extend(model.into_iter().flat_map(costs));
	lines.join("\n")
}

/// What every program is loaded with, and keeps it from being sealed.
fn preloaded() -> Vec<String> {
	let system = std::fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
	let own = std::env::var("LD_PRELOAD").unwrap_or_default();
	let files = system.split_whitespace().chain(own.split([' ', ':'])).filter(|file| file.starts_with('/'));
	let refused = files.filter_map(|file| {
		let seen = code::examine(Path::new(file)).ok().filter(|seen| seen.verdict == Verdict::Refused)?;
		Some(format!(
			"NO  programs are loaded with {file}, which {}: none of them is sealed (flashfork run --trust)",
			seen.what()
		))
	});
	refused.collect()
}

fn costs(model: &CostModel) -> Vec<String> {
	let seconds = model.calibration_seconds;
	let mut lines = vec![
		String::new(),
		format!("What a fork call costs here, predicted by the model calibrated just now ({seconds:.1} s):"),
		format!("{:>8} {:>12} {:>12} {:>12} {:>12}", "memory", "4 KB pages", "THP", "sealed", "on demand"),
	];
	for mb in [64, 1024, 8192] {
		let of = |engine| match model.fork_time(engine, Memory::clean(mb << 20)) {
			Some(time) => format!("{:.0} µs", time.as_secs_f64() * 1e6),
			None => "-".into(),
		};
		let [plain, thp, seal, odf] = [Engine::Fork, Engine::ForkThp, Engine::Seal, Engine::Odf].map(of);
		lines.push(format!("{:>8} {plain:>12} {thp:>12} {seal:>12} {odf:>12}", format!("{mb} MB")));
	}
	lines
}

#[cfg(test)]
mod tests {
	use super::{HostKvm, conclusion};

	#[test]
	fn the_conclusion_says_what_to_type_for_what_works() {
		let kvm = [Some(HostKvm::Linux), Some(HostKvm::Untried), Some(HostKvm::Tiny), Some(HostKvm::None), None];
		for (seal, kvm) in [true, false].into_iter().flat_map(|seal| kvm.map(|kvm| (seal, kvm))) {
			let said = conclusion(seal, kvm);
			assert_eq!(said.contains("`flashfork run -- PROGRAM`"), seal, "{said}");
			let type_it = matches!(kvm, Some(HostKvm::Linux | HostKvm::Untried));
			assert_eq!(said.contains("`flashfork vm run -- echo hello`"), type_it, "{said}");
		}
	}
}
