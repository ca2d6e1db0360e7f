//! `flashfork doctor`: what this host can do.

use crate::error::CliError;
use crate::places;
use clap::Args;
use flashfork::cost::{CostModel, Engine, Memory};
use flashfork::{Capability, Host};
use std::process::ExitCode;

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
    let model = args.calibrate.then(calibrate).transpose()?;
    if args.json {
        let value = serde_json::json!({ "schema": "flashfork.doctor/1", "host": host, "cost_model": model });
        println!("{value:#}");
    } else {
        print(&host, model.as_ref());
    }
    if host.can_seal() {
        return Ok(ExitCode::SUCCESS);
    }
    let missing: Vec<_> = host.capabilities.iter().filter(|c| c.needed && !c.available).map(|c| c.name).collect();
    Err(CliError::Unable(format!(
        "nothing can be sealed on this host: {} missing; forks under flashfork are plain and correct",
        missing.join(", ")
    )))
}

fn calibrate() -> Result<CostModel, CliError> {
    let path = places::cost_model()?;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(CliError::file("create", dir))?;
    }
    let model = CostModel::calibrate().map_err(|e| CliError::Unable(e.to_string()))?;
    model.save(&path).map_err(|e| CliError::Unable(e.to_string()))?;
    Ok(model)
}

fn print(host: &Host, model: Option<&CostModel>) {
    println!("{}", host.id);
    for Capability { name, available, detail, enables, without, cure, .. } in &host.capabilities {
        println!("{} {name}: {detail}", if *available { "yes" } else { "NO " });
        if *available {
            println!("      for: {enables}");
        } else {
            println!("      lost: {without}\n      cure: {cure}");
        }
    }
    if let Some(model) = model {
        println!("fork call on this host, calibrated in {:.1} s and kept:", model.calibration_seconds);
        println!("{:>8} {:>12} {:>12} {:>12}", "memory", "4 KB pages", "THP", "sealed");
        for mb in [64, 1024, 8192] {
            let of = |engine| match model.fork_time(engine, Memory::clean(mb << 20)) {
                Some(time) => format!("{:.0} µs", time.as_secs_f64() * 1e6),
                None => "-".into(),
            };
            let [plain, thp, seal] = [Engine::Fork, Engine::ForkThp, Engine::Seal].map(of);
            println!("{:>8} {plain:>12} {thp:>12} {seal:>12}", format!("{mb} MB"));
        }
    }
}
