//! Claims shells one after the other and shows what each step took: `claim MEMORY_MIB COUNT [KEEP]`. KEEP shells wait while
//! another one is claimed. Run on a quiet machine for figures.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/shell.rs"]
mod shell_client;

use common::{guest, shape};
use flashfork_proto::shell::FromShell;
use shell_client::{Shell, code, template};
use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, memory, count, rest @ ..] = &args[..] else { return Err("usage: claim MEMORY_MIB COUNT [KEEP]".into()) };
    let (shape, count) = (shape(memory.parse()?, 1), count.parse::<usize>()?);
    let keep = rest.first().map_or(Ok(4), |keep| keep.parse::<usize>())?;
    let template = template(shape, &code(guest()));
    let mut pool: VecDeque<Shell> = Shell::prepare_many(shape, keep).into();
    let mut samples: [Vec<u64>; 9] = Default::default();
    for index in 0..count {
        pool.push_back(Shell::prepare(shape));
        let mut shell = pool.pop_front().ok_or("no shell")?;
        // What the last one left behind has settled.
        std::thread::sleep(Duration::from_millis(5));
        let start = Instant::now();
        shell.send_claim(&template, index as u64);
        let sent = start.elapsed();
        let FromShell::Claimed(t) = shell.next() else { return Err("not claimed".into()) };
        let total = start.elapsed();
        let total = total.as_nanos() as u64;
        // Both processes' way through the scheduler, and what sending takes.
        let wakes = total.saturating_sub(t.total());
        let sent = sent.as_nanos() as u64;
        let values = [total, wakes, sent, t.check, t.map, t.vcpus, t.machine, t.devices, t.first_exit];
        samples.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        shell.ended();
    }
    println!("{shape}, n = {count}, {keep} waiting; load {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    println!("{:>10} {:>8} {:>8} {:>8} {:>8} {:>8}  µs", "", "min", "p50", "p90", "p99", "max");
    let names = ["total", "wakes", "sendmsg", "check", "map", "vcpus", "machine", "devices", "first exit"];
    for (name, all) in names.iter().zip(&mut samples) {
        all.sort_unstable();
        let at = |part: f64| all[((all.len() - 1) as f64 * part).round() as usize] as f64 / 1000.0;
        println!("{name:>10} {:8.1} {:8.1} {:8.1} {:8.1} {:8.1}", at(0.0), at(0.5), at(0.9), at(0.99), at(1.0));
    }
    Ok(())
}
