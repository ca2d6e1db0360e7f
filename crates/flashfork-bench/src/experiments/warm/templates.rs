//! The templates of the experiment.

use super::command::Runs;
use super::program::Program;
use crate::subjects::guard::Guard;
use flashfork_measure::BenchError;

/// A template.
#[derive(Debug)]
pub(super) struct Template {
    pid: u32,
    /// Bytes of its memory that are sealed.
    pub sealed: u64,
}

impl Template {
    /// Warms a program; or says why there is no template of it.
    pub(super) fn warm(runs: &Runs, program: Program, guard: &mut Guard) -> Result<Result<Self, String>, BenchError> {
        let failed = |error| BenchError::system("start flashfork warm", error);
        let mut warm = runs.flashfork();
        // The template keeps no output of the experiment open.
        let warm = warm.args(["warm", program.name(), "--"]).args(program.warmed()).output().map_err(failed)?;
        if !warm.status.success() {
            let said = String::from_utf8_lossy(&warm.stderr).into_owned();
            return Ok(Err(said.lines().last().unwrap_or("flashfork warm failed").to_owned()));
        }
        let list = runs.flashfork().args(["ls", "--json"]).output().map_err(failed)?;
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
        let found = list.as_array().and_then(|all| all.iter().find(|one| one["name"] == program.name()));
        let number = |key: &str| found.and_then(|one| one[key].as_u64());
        let (Some(pid), Some(sealed)) = (number("pid"), number("sealed_bytes")) else {
            return Err(BenchError::Unable(format!("flashfork ls doesn't know the template {}", program.name())));
        };
        let pid = u32::try_from(pid).map_err(|_| BenchError::Unable(format!("{pid} is no process")))?;
        guard.watch(pid)?;
        Ok(Ok(Self { pid, sealed }))
    }

    /// Page faults of its clones that have ended.
    pub(super) fn faults_of_clones(&self) -> Result<f64, BenchError> {
        let path = format!("/proc/{}/stat", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|error| BenchError::system(format!("read {path}"), error))?;
        faults(&text).ok_or_else(|| BenchError::Unable(format!("{path} has no faults of children")))
    }
}

/// `cminflt` of `/proc/PID/stat` (proc(5)): the eleventh field; the second may hold blanks, and ends with a
/// parenthesis.
fn faults(stat: &str) -> Option<f64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(8)?.parse().ok()
}

/// Whether a program is there, by running it as the experiment will: the reason if not.
pub(super) fn lacks(runs: &Runs, program: Program) -> Option<String> {
    let error = runs.once(super::command::Way::Cold).err()?;
    let packages = program.packages();
    Some(format!("it can't be run ({error}); Debian has it in {packages}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_behind_any_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 120 3456 7 8 1 2 3 4 20 0 1 0 99 1 2";
        assert_eq!(faults(stat), Some(3456.0));
        assert_eq!(faults("77 (a) S 1"), None);
    }
}
