//! What a fork server is started with, in one directory: kernel, initramfs, seeds, the library that forks QEMU, and the
//! script that starts it, which afl-fuzz can start, too.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use flashfork_image::guest::SERIES;
use flashfork_image::{KernelFiles, Tree};

use super::seeds;
use crate::subjects::vm_host::vm;
use flashfork_measure::{BenchError, Progress};

const FORK_SERVER: &str = include_str!("../../../../fuzz-target/fork_server.c");
const GUEST: &str = include_str!("../../../../fuzz-target/guest.c");

/// What the guest's kernel has for itself; the rest of its memory the guest fills.
const OF_KERNEL: u64 = 192 << 20;
/// Where the guest's driver looks for its input (guest.c).
const INPUT: u64 = 96;

/// Makes everything in `dir`; the kernel is downloaded into `cache`, if need be.
pub(super) fn make(dir: &Path, size: u64, cache: &Path, progress: &mut dyn Progress) -> Result<(), BenchError> {
    if size <= OF_KERNEL {
        return Err(BenchError::Unable("Linux in QEMU needs more memory: --size 256M or more".into()));
    }
    let failed = |error: std::io::Error| BenchError::system(format!("write into {}", dir.display()), error);
    progress.begin("QEMU's fork server and the guest's kernel", 1);
    fs::create_dir_all(dir.join("seeds")).map_err(failed)?;
    compile(dir, "fork_server", FORK_SERVER, &["-shared", "-fPIC"])?;
    compile(dir, "guest", GUEST, &["-static", "-s"])?;
    let inputs = seeds::all();
    for (number, input) in inputs.iter().enumerate() {
        fs::write(dir.join("seeds").join(number.to_string()), input).map_err(failed)?;
    }
    fs::create_dir_all(cache).map_err(failed)?;
    let kernel = KernelFiles::debian(SERIES, cache, &mut |line| progress.note(line)).map_err(vm)?;
    fs::copy(&kernel.image, dir.join("kernel")).map_err(failed)?;
    let mut tree = Tree::new();
    tree.add_bytes("/init", fs::read(dir.join("guest")).map_err(failed)?, 0o755);
    tree.add_bytes("/seeds", inputs.concat(), 0o644);
    tree.write(&mut File::create(dir.join("initramfs")).map_err(failed)?).map_err(vm)?;
    let script = dir.join("qemu");
    fs::write(&script, start(size)).map_err(failed)?;
    fs::set_permissions(&script, Permissions::from_mode(0o755)).map_err(failed)?;
    progress.step();
    Ok(())
}

/// The script. The library is a plugin, too, where AFL wants to know of edges.
fn start(size: u64) -> String {
    let (megabytes, fill) = (size >> 20, (size - OF_KERNEL) >> 20);
    format!(
        "#!/bin/sh
cd \"${{0%/*}}\" || exit
[ -z \"$__AFL_SHM_ID\" ] || set -- -plugin ./fork_server
export LD_PRELOAD=\"${{LD_PRELOAD:+$LD_PRELOAD:}}./fork_server\"
exec qemu-system-x86_64 -accel tcg,thread=single -cpu max -m {megabytes}M -machine pc,mem-merge=off -nodefaults \\
    -no-user-config -display none -no-reboot -chardev file,id=console,path=/dev/stderr,append=on -serial chardev:console \\
    -chardev stdio,id=port,signal=off -device isa-debugcon,chardev=port -kernel kernel -initrd initramfs \\
    -append 'console=ttyS0 quiet panic=-1 oops=panic nokaslr memmap=128K${INPUT}M fill={fill}' \"$@\"
"
    )
}

fn compile(dir: &Path, name: &str, source: &str, how: &[&str]) -> Result<(), BenchError> {
    let file = dir.join(name).with_extension("c");
    fs::write(&file, source).map_err(|error| BenchError::system(format!("write {}", file.display()), error))?;
    let command = Command::new("cc").arg("-O2").args(how).arg("-o").arg(dir.join(name)).arg(&file).output();
    match command {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().find(|line| line.contains("rror")).unwrap_or("no reason given").to_owned();
            Err(BenchError::Unable(format!("cc can't compile {name}.c, which needs gcc and libc6-dev: {why}")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(BenchError::Unable("there is no C compiler; install gcc and libc6-dev".into()))
        }
        Err(error) => Err(BenchError::system("run cc", error)),
    }
}
