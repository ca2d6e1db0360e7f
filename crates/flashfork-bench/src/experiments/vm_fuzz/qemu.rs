//! `bench vm-fuzz --qemu`: the machine of the paper's figure, a QEMU process that AFL's fork server forks, as it is and
//! sealed.
//!
//! TriforceAFL changes QEMU: when the guest's driver asks for it, the virtual CPU's thread ends, the main loop forks,
//! and each child starts such a thread again, without timers. Here QEMU is Debian's, and a library loaded into it forks
//! in that thread, which a child goes on with: no other thread is needed where nothing sets off timers. Children don't
//! hand their translations to their parent; the guest makes the calls of all seeds once before it is forked.
//!
//! Inputs are system calls, chosen once and for all: each fork server gets the same ones in the same order.

mod found;
mod machine;
mod report;
mod seeds;
mod server;

use std::os::unix::process::ExitStatusExt;

use serde_json::json;

use super::VmFuzzOptions;
use crate::subjects::{Method, memory};
use flashfork_measure::experiment::{Places, Results};
use flashfork_measure::sampling::{Effort, Visit, sample};
use flashfork_measure::workdir::WorkDir;
use flashfork_measure::{BenchError, Progress, pin};
use found::Measure;
pub(super) use report::render;
use server::{Server, Setup};

/// Left to the rest of the machine.
const RESERVE: u64 = 512 << 20;

pub(super) fn measure(
    options: &VmFuzzOptions,
    here: &dyn Places,
    results: &mut Results,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let size = options.size.0;
    let (methods, missing) = Method::here();
    for (method, why) in missing {
        results.leave_out(method.name(), why, progress);
    }
    let needed: u64 = methods.iter().map(|method| method.memory_needed(size)).sum();
    memory::require(&memory::headroom()?, format!("a QEMU of {} for each way", options.size), needed + RESERVE)?;
    let work = WorkDir::new(Some(&here.cache("bench")?))?;
    let dir = options.keep.clone().unwrap_or_else(|| work.path().join("machine"));
    machine::make(&dir, size, &here.cache("lab")?, progress)?;
    let setup = Setup { dir: &dir, work: work.path(), shim: here.shim()?, cpu: pin::chosen_cpu()? };
    progress.begin("Linux in QEMU, for each way of forking it", methods.len() as u64);
    let mut servers: Vec<Server> = Vec::new();
    for method in methods {
        if progress.interrupted() {
            return Ok(());
        }
        let trusted = servers.first().map(Server::library_with_system_calls).transpose()?.flatten();
        let mut server = Server::start(&setup, method, trusted.as_deref())?;
        // Of one that sees no crash nobody knows what its children do.
        let crash = server.execute(&seeds::crash())?.status;
        if crash.signal() != Some(libc::SIGABRT) {
            return Err(BenchError::Clone { what: "making its kernel panic".into(), status: crash.to_string() });
        }
        servers.push(server);
        progress.step();
    }
    let inputs = seeds::all();
    let effort = Effort { warm_up: 1, ..Effort::rounds(options.rounds()) }.until(progress.deadline());
    progress.begin("interleaved rounds of executions", effort.steps());
    let (sampled, done) = sample(servers.len(), &effort, size, progress, |cell, _| visit(&mut servers[cell], &inputs));
    for (server, series) in servers.iter().zip(&sampled.cells) {
        let shim = server.shim()?;
        let resident = server.resident;
        for series in series {
            let chosen = [("machine", json!("qemu")), ("measure", json!(series.measure.name())), ("size", json!(size))];
            let observed = [("resident_bytes", json!(resident)), ("shim", json!(shim))];
            results.keep(server.method.name(), chosen, observed, "us", series, sampled.ended)?;
        }
    }
    done
}

/// Each input once.
fn visit(server: &mut Server, inputs: &[Vec<u8>]) -> Result<Visit<Measure>, BenchError> {
    let (mut executions, mut forks) = (Vec::new(), Vec::new());
    for input in inputs {
        let execution = server.execute(input)?;
        if !execution.status.success() {
            let status = execution.status.to_string();
            return Err(BenchError::Clone { what: "making a seed's system calls".into(), status });
        }
        executions.push(execution.whole.as_secs_f64() * 1e6);
        forks.push(execution.fork.as_secs_f64() * 1e6);
    }
    Ok(vec![(Measure::Execution, executions), (Measure::Fork, forks)])
}
