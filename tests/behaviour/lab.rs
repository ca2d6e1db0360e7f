//! The programs once more on other kernels, and what this machine may lack: swap, THP=always, huge pages in reserve, a machine-wide
//! setting that may be changed.

use crate::program::{Program, all};
use flashfork_lab::{Collected, GuestFile, Kernel, Lab, Options, cache_dir};
use flashfork_tests::shim;
use libtest_mimic::{Failed, Trial};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Programs that show something only there: they must not be skipped.
const ON_EVERY_KERNEL: &[&str] = &["hugetlb", "low_memory", "overcommit_never", "swapped"];
/// Likewise before `PAGEMAP_SCAN`.
const ON_6_1: &[&str] = &["too_large"];

/// One test for each kernel.
pub fn trials() -> Vec<Trial> {
    let kernels = [(Kernel::Debian6_1, ON_6_1), (Kernel::Debian6_12, &[])];
    let trial = |(kernel, more): (Kernel, &'static [&str])| {
        Trial::test(format!("lab/{kernel}"), move || run(kernel, &[ON_EVERY_KERNEL, more].concat()))
    };
    kernels.into_iter().map(trial).collect()
}

fn run(kernel: Kernel, must_run: &[&str]) -> Result<(), Failed> {
    let cache = cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    let lab = Lab::new(cache.ok_or("the lab needs HOME or XDG_CACHE_HOME for its kernels")?)?;
    let place = format!("lab-{kernel}");
    let (script, files) = job(&place)?;
    let options = Options {
        kernel,
        memory_mib: 1024,
        cpus: 2,
        swap_mib: 256,
        // Never reached: it gives the guest the memory controller.
        memory_max: Some(900 << 20),
        files,
        env: vec![("FLASHFORK_LAB".into(), "1".into()), ("FLASHFORK_ENGINE".into(), "fork".into())],
        timeout: Duration::from_secs(600),
        ..Options::default()
    };
    let mut output = Collected::default();
    let outcome = lab.run(&options, &["sh", "-c", &script], &mut output)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut wrong = String::new();
    let mut count = 0;
    for line in said.lines() {
        let mut words = line.splitn(3, ' ');
        let (name, code) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let skipped_well = code == "77" && !must_run.contains(&name);
        if code != "0" && !skipped_well {
            writeln!(wrong, "{line}")?;
        }
        count += 1;
    }
    if count != all().len() {
        writeln!(wrong, "{count} of {} programs ran: {}", all().len(), outcome.status)?;
    }
    for line in outcome.kernel_warnings {
        writeln!(wrong, "{line}")?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("on {}:\n{wrong}", outcome.kernel_release).into()) }
}

/// The script that runs every program and prints `name exit-code message`, and the files it needs.
fn job(place: &str) -> Result<(String, Vec<GuestFile>), Failed> {
    let into = |host: PathBuf, guest: String| GuestFile { host, guest: guest.into() };
    let mut files = vec![into(shim::path().to_path_buf(), "/t/shim.so".into())];
    let mut script = String::from(
        "mkdir -p /tmp; cd /tmp; echo 4 > /proc/sys/vm/nr_hugepages\n\
         run() {\n\
             timeout 120 env \"LD_PRELOAD=$2\" $3 /t/$1 2> /tmp/err > /dev/null < /dev/null\n\
             echo \"$1 $? $(tr '\\n' ' ' < /tmp/err)\"\n\
         }\n",
    );
    let mut programs = all();
    // It changes the machine.
    programs.sort_by_key(|p| p.name == "overcommit_never");
    for program in &programs {
        files.push(into(program.compile(place)?, format!("/t/{}", program.name)));
        let mut preload = String::from("/t/shim.so");
        if let Some(library) = program.directive("preload") {
            preload = format!("/t/{library}:{preload}");
            files.extend(library_path(&library).map(|host| into(host, format!("/t/{library}"))));
        }
        let env = program.directive("env").unwrap_or_default();
        writeln!(script, "run {} {preload} {env}", program.name)?;
    }
    Ok((script, files))
}

/// Where a library of the host is, as the linker finds it.
fn library_path(name: &str) -> Option<PathBuf> {
    let output = Program::compiler().arg(format!("-print-file-name={name}")).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(Path::new(path.trim()).to_path_buf()).filter(|p| p.is_absolute())
}
