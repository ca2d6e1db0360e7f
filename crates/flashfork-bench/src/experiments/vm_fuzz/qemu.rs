//! `bench vm-fuzz --qemu`: the machine of the paper's figure, a QEMU process that AFL's fork server forks, as it is and
//! sealed.
//!
//! TriforceAFL changes QEMU: when the guest's driver asks for it, the virtual CPU's thread ends, the main loop forks,
//! and each child starts such a thread again, without timers. Here QEMU is Debian's, and a library loaded into it forks
//! in that thread, which a child goes on with: no other thread is needed where nothing sets off timers. Children don't
//! hand their translations to their parent; the guest makes the calls of all seeds once before it is forked.
//!
//! Inputs are system calls, chosen once and for all: each fork server gets the same ones in the same order.

mod machine;
mod report;
mod seeds;
mod server;

use std::os::unix::process::ExitStatusExt;

use super::{RESERVE, VmFuzzOptions};
use crate::prelude::*;
pub use report::render;
use server::{Server, Setup};

/// As records name what is timed: from AFL's request until it knows how the child ended, and of that the fork in QEMU.
const EXECUTION: &str = "execution";
const FORK: &str = "fork";

pub fn measure(options: &VmFuzzOptions, run: &mut Run) -> Result {
	let size = options.size.0;
	let (methods, missing) = Method::here();
	for (method, why) in missing {
		run.leave_out(method.as_ref(), why);
	}
	let needed: u64 = methods.iter().map(|method| method.memory_needed(size)).sum();
	memory::require(&memory::headroom()?, format!("a QEMU of {} for each way", options.size), needed + RESERVE)?;
	let work = WorkDir::new(Some(&run.here.cache("bench")?))?;
	let dir = options.keep.clone().unwrap_or_else(|| work.path().join("machine"));
	machine::make(&dir, size, run)?;
	let setup = Setup { dir: &dir, work: work.path(), shim: run.here.shim()?, cpu: pin::chosen_cpu()? };
	run.begin("Linux in QEMU, for each way of forking it", methods.len() as u64);
	let mut servers: Vec<Server> = Vec::new();
	for method in methods {
		run.go_on()?;
		let trusted = servers.first().map(Server::library_with_system_calls).transpose()?.flatten();
		let mut server = Server::start(&setup, method, trusted)?;
		// Of one that sees no crash nobody knows what its children do.
		let crash = server.execute(&seeds::crash())?.status;
		if crash.signal() != Some(libc::SIGABRT) {
			return Err(BenchError::Clone { what: "making its kernel panic".into(), status: crash.to_string() });
		}
		servers.push(server);
		run.step();
	}
	let inputs = seeds::all();
	let effort = Effort { warm_up: 1, ..Effort::rounds(options.rounds()) };
	let stage = "interleaved rounds of executions";
	let taken = run.sample(stage, effort, servers.len(), size, |cell, _| visit(&mut servers[cell], &inputs));
	let shims = servers.iter().map(Server::shim).collect::<Result<Vec<_>>>()?;
	taken.keep(run, |cell, measure| {
		let Server { method, resident, .. } = servers[cell];
		Row::of(method.as_ref(), "us", json!({ "machine": "qemu", "measure": measure, "size": size }))
			.beside(json!({ "resident_bytes": resident, "shim": shims[cell] }))
	})
}

/// Each input once.
fn visit(server: &mut Server, inputs: &[Vec<u8>]) -> Result<Visit<&'static str>> {
	let (mut executions, mut forks) = (Vec::new(), Vec::new());
	for input in inputs {
		let execution = server.execute(input)?;
		if !execution.status.success() {
			let status = execution.status.to_string();
			return Err(BenchError::Clone { what: "making a seed's system calls".into(), status });
		}
		executions.push(execution.whole);
		forks.push(execution.fork);
	}
	Ok(vec![(EXECUTION, executions), (FORK, forks)])
}
