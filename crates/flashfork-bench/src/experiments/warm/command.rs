//! One command, timed as a shell sees it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::program::Program;
use flashfork_measure::BenchError;

/// What every script prints.
pub(super) const LINE: &[u8] = b"1\n";

/// How a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Started anew.
    Cold,
    /// A clone, its template having had time before.
    Clone,
    /// Clones one after the other.
    Busy,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Cold, Self::Clone, Self::Busy];

    /// The name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Clone => "clone",
            Self::Busy => "clone-busy",
        }
    }
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// Microseconds from the start until the command had ended and was waited for.
    pub whole: f64,
    /// Microseconds until its first line was there; none for a program that prints nothing.
    pub line: Option<f64>,
    /// Page faults of the command itself.
    pub faults: f64,
}

/// The commands of one program.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    program: Program,
    flashfork: PathBuf,
    /// Where the names of templates are.
    names: PathBuf,
    script: Option<PathBuf>,
    anew: PathBuf,
}

impl Runs {
    /// Writes the program's script into the directory `place`, which also holds the names, or compiles it there.
    pub(super) fn new(program: Program, flashfork: &Path, place: &Path) -> Result<Self, BenchError> {
        let script = program.script().map(|text| (place.join(program.name()), text));
        let failed = |error| BenchError::system("write a script", error);
        if let Some((path, text)) = &script {
            std::fs::write(path, text).map_err(failed)?;
        }
        let script = script.map(|(path, _)| path);
        let anew = program.anew().map_or_else(|| place.join(program.name()), PathBuf::from);
        if let Some(flags) = program.flags() {
            compile(flags, &anew)?;
        }
        Ok(Self { program, flashfork: flashfork.to_owned(), names: place.to_owned(), script, anew })
    }

    /// The command `flashfork` with the names of this experiment.
    pub(super) fn flashfork(&self) -> Command {
        let mut command = Command::new(&self.flashfork);
        // Out of reach of the terminal's Ctrl-C, which ends the experiment after the sample.
        command.env("XDG_RUNTIME_DIR", &self.names).stdin(Stdio::null()).process_group(0);
        command
    }

    fn command(&self, way: Way) -> Command {
        let mut command = match way {
            Way::Cold => {
                let mut command = Command::new(&self.anew);
                command.stdin(Stdio::null()).process_group(0);
                command
            }
            Way::Clone | Way::Busy => {
                let mut command = self.flashfork();
                command.args(["clone", self.program.name()]);
                command
            }
        };
        command.args(&self.script).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it once; a wrong exit status or output voids the experiment.
    pub(super) fn once(&self, way: Way) -> Result<Taken, BenchError> {
        let mut command = self.command(way);
        let what = || format!("{} {}", self.program.name(), way.name());
        let faults = faults_of_children()?;
        let begin = Instant::now();
        let mut child = command.spawn().map_err(|error| BenchError::system(format!("start {}", what()), error))?;
        let (mut output, mut line) = (Vec::new(), None);
        if let Some(pipe) = &mut child.stdout {
            let mut part = [0; 64];
            loop {
                match pipe.read(&mut part) {
                    Ok(0) => break,
                    Ok(count) => output.extend_from_slice(&part[..count]),
                    Err(error) => return Err(BenchError::system(format!("read from {}", what()), error)),
                }
                if line.is_none() && output.ends_with(LINE) {
                    line = Some(micros(begin));
                }
            }
        }
        let status = child.wait().map_err(|error| BenchError::system(format!("wait for {}", what()), error))?;
        let whole = micros(begin);
        let faults = faults_of_children()? - faults;
        if !status.success() || output != if self.program.prints() { LINE } else { b"" } {
            let mut said = String::new();
            if let Some(pipe) = &mut child.stderr {
                // Only to say more about the failure.
                let _ = pipe.read_to_string(&mut said);
            }
            let last = said.lines().last().unwrap_or("it printed the wrong thing");
            return Err(BenchError::Clone { what: format!("running {}", what()), status: format!("{status}: {last}") });
        }
        Ok(Taken { whole, line, faults })
    }
}

/// Compiles a C program that does nothing. Where there is no compiler there is no program afterwards.
fn compile(flags: &[&str], program: &Path) -> Result<(), BenchError> {
    let source = program.with_extension("c");
    std::fs::write(&source, "int main(void) { return 0; }\n")
        .map_err(|error| BenchError::system("write a C program", error))?;
    let mut compiler = Command::new("cc");
    let _ = compiler.args(flags).arg("-o").arg(program).arg(source).stdin(Stdio::null()).output();
    Ok(())
}

fn micros(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6
}

/// Page faults of the children that were waited for, without those that read from a disk. `getrusage(2)`.
fn faults_of_children() -> Result<f64, BenchError> {
    // SAFETY: all zeros are a value of this plain C structure, which is writable.
    let (done, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), usage)
    };
    if done != 0 {
        return Err(BenchError::system("read what children used", std::io::Error::last_os_error()));
    }
    Ok(usage.ru_minflt as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_timed_and_what_it_does_is_checked() {
        let place = tempfile::tempdir().unwrap();
        let runs = Runs::new(Program::True, Path::new("/bin/false"), place.path()).unwrap();
        let taken = runs.once(Way::Cold).unwrap();
        assert!(taken.whole > 0.0 && taken.line.is_none() && taken.faults > 0.0);
        let wrong = runs.once(Way::Clone).unwrap_err();
        assert!(wrong.voids() && wrong.to_string().contains("exit status: 1"), "{wrong}");
    }

    #[test]
    fn a_program_that_does_nothing_is_compiled() {
        let place = tempfile::tempdir().unwrap();
        let faults = [Program::CDynamic, Program::CStatic].map(|program| {
            let runs = Runs::new(program, Path::new("/bin/false"), place.path()).unwrap();
            runs.once(Way::Cold).unwrap().faults
        });
        assert!(faults[1] < faults[0], "{faults:?}");
    }

    #[test]
    fn the_first_line_comes_before_the_end() {
        let place = tempfile::tempdir().unwrap();
        let taken = Runs::new(Program::Perl, Path::new("/bin/false"), place.path()).unwrap().once(Way::Cold).unwrap();
        assert!(taken.line.unwrap() <= taken.whole, "{taken:?}");
    }
}
