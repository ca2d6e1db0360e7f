//! What runs in the guests.

use std::io::{Read, Write};

use flashfork_proto::agent::{Client, Exec, Exit};

use crate::subjects::vm_host::vm;
use flashfork_measure::BenchError;

/// What a command may say.
const OUTPUT: usize = 1 << 16;

/// Ends when the database has loaded its keys.
pub(super) const START_DATABASE: &str = "sh /db/start";
/// The application asks the database, and says its name and the answer.
pub(super) const RUN_APPLICATION: &str = "sh /app/run";

/// Of a machine with one disk: everything where the others have it.
pub(super) fn mount_whole(app: &str) -> String {
    format!("mkdir /whole && mount -t ext4 /dev/vda /whole && ln -s /whole/db /db && ln -s /whole/{app} /app")
}

/// What an application says.
pub(super) fn greeting(app: &str) -> String {
    format!("{app}: hello\n")
}

/// Runs a command of the guest's shell, which must say this.
pub(super) fn run<R: Read, W: Write>(agent: &mut Client<R, W>, command: &str, says: &str) -> Result<(), BenchError> {
    let argv = ["sh", "-c", command].map(|word| word.as_bytes().to_vec().into()).into();
    let exec = Exec { argv, survives: true, ..Exec::default() };
    let output = agent.run(&exec, &[], OUTPUT).map_err(vm)?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.exit == Exit::Code(0) && said == says {
        return Ok(());
    }
    let status = format!("{:?}: {said}{}", output.exit, String::from_utf8_lossy(&output.stderr));
    Err(BenchError::Clone { what: format!("running {command:?}"), status })
}
