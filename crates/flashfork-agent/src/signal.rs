//! Signals to the monitor, from the command line and from init.

use flashfork_proto::signal::{Role, Signals};

use crate::ports::Ports;
use crate::reaper::Reaper;
use crate::renew;

/// `flashfork-agent signal COMMAND`.
pub fn run(command: &str, rest: &[&str]) -> Result<(), String> {
    let mut signals = find()?;
    match (command, rest) {
        ("fork", []) => {
            let reaper = Reaper::start().map_err(|error| format!("cannot start a thread: {error}"))?;
            fork(&mut signals, &reaper).map(drop)
        }
        ("reset", []) => {
            let nanoseconds = signals.reset().map_err(|error| error.to_string())?;
            println!("{nanoseconds}");
            Ok(())
        }
        ("done", []) => signals.done(0, &[]).map_err(|error| error.to_string()),
        ("done", [status]) => done(&mut signals, status, ""),
        ("done", [status, result]) => done(&mut signals, status, result),
        _ => Err(format!("no signal {command:?} with {} arguments", rest.len())),
    }
}

/// The monitor's ports, if there is a monitor.
pub fn find() -> Result<Signals<Ports>, String> {
    let ports = Ports::open().map_err(|error| format!("cannot use I/O ports: {error}"))?;
    Signals::find(ports).map_err(|error| error.to_string())
}

/// Says that the guest is warm. In a clone, makes it one of its own and says that it is alive, or,
/// if that fails, ends it: a clone that is not one of its own must not be used.
pub fn fork(signals: &mut Signals<Ports>, reaper: &Reaper) -> Result<Role, String> {
    let forked = signals.fork().map_err(|error| error.to_string())?;
    if forked.role == Role::Template {
        return Ok(forked.role);
    }
    if let Err(message) = renew::renew(&forked, reaper) {
        signals.done(renew::FAILED_STATUS, message.as_bytes()).map_err(|error| error.to_string())?;
        return Err(message);
    }
    signals.alive(&forked.identity.generation).map_err(|error| error.to_string())?;
    Ok(forked.role)
}

fn done(signals: &mut Signals<Ports>, status: &str, result: &str) -> Result<(), String> {
    let status = status.parse().map_err(|_| format!("{status:?} is no status: give 0 to 4294967295"))?;
    signals.done(status, result.as_bytes()).map_err(|error| error.to_string())
}
