//! Users without any right of their own, and systems that don't let them make namespaces.

use crate::place::{Place, line, state, stderr, stdout, until};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const NOBODY: u32 = 65534;

const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/types.h>
#include <dirent.h>
int flashfork_ready(int *, char ***) __attribute__((weak));
static void *other(void *x) { for (;;) pause(); }
int main(int argc, char **argv) {
    pthread_t t; pthread_create(&t, 0, other, 0);
    flashfork_ready(&argc, &argv);
    DIR *d = opendir("/proc/self/task"); struct dirent *e;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        char path[300], text[256]; snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (fgets(text, sizeof text, f)) if (!strncmp(text, "Cap", 3) && strtoull(text + 7, 0, 16)) fputs(text, stdout);
        fclose(f);
    }
    printf("%d %d\n", getuid(), getgid());
    return 0;
}
"#;

/// Somewhere that another user can reach, with the command's files.
struct Other {
    place: Place,
    bin: std::path::PathBuf,
}

impl Other {
    /// `None` where tests don't run as root: then the others are those of an ordinary user.
    fn new() -> Option<Other> {
        // SAFETY: asks for a number.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let place = Place::new();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let bin = place.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_flashfork"));
        for name in ["flashfork", "flashfork-keeper", "libflashfork_preload.so"] {
            std::fs::copy(built.with_file_name(name), bin.join(name)).unwrap();
        }
        place.program("program", PROGRAM);
        let home = place.path().join("run");
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Other { place, bin })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join("flashfork"));
        command.args(arguments).env("XDG_RUNTIME_DIR", self.place.path().join("run")).current_dir("/");
        command.stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn warm(&self) -> Output {
        let program = self.place.path().join("program");
        self.run(&["warm", "--threads", "--unfinished", "--ready", "call", "t", "--", program.to_str().unwrap()])
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.run(&["rm", "t"]);
    }
}

#[test]
fn an_ordinary_users_clones_have_no_capabilities() {
    let Some(other) = Other::new() else { return };
    let warm = other.warm();
    assert!(warm.status.success(), "{}", stderr(&warm));
    for _ in 0..2 {
        let clone = other.run(&["clone", "t"]);
        assert_eq!((stdout(&clone), stderr(&clone)), (format!("{NOBODY} {NOBODY}\n").as_str(), ""));
    }
}

#[test]
fn where_namespaces_are_used_up_one_line_says_so() {
    let Some(other) = Other::new() else { return };
    // In a user namespace whose limit is the test's to set, and then without any right.
    let program = other.place.path().join("program");
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all {} warm --threads --unfinished --ready call t -- {}",
        other.bin.join("flashfork").display(),
        program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", &script]).uid(NOBODY).gid(NOBODY);
    command.env("XDG_RUNTIME_DIR", other.place.path().join("run")).current_dir("/");
    let refused = command.output().unwrap();
    assert!(line(&refused).contains("no user namespace is left"), "{}", line(&refused));
    assert!(line(&refused).contains("templates of programs with one thread"), "{}", line(&refused));
}

#[test]
fn nothing_of_an_ordinary_users_template_is_left() {
    let Some(other) = Other::new() else { return };
    assert!(other.warm().status.success());
    let listed = other.run(&["ls", "--json"]);
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let keeper = i32::try_from(listed[0]["pid"].as_i64().unwrap()).unwrap();
    let init = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
    let init: i32 = init.split_whitespace().next().unwrap().parse().unwrap();
    crate::place::kill(keeper, libc::SIGKILL);
    until("its init is gone", || state(init).is_none());
}
