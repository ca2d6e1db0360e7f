//! The daemon, its shells and tiny guests: the real programs, seen through the socket.

mod common;

use common::{guest, kvm};
use flashfork_proto::api::{self, Clone, CloneState, Template};
use flashfork_vmm::boot::Source;
use rustix::mount::MountFlags;
use rustix::thread::UnshareFlags;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

struct Daemon {
    child: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Option<Self> {
        Self::start_with(|_| ())
    }

    fn start_with(change: impl FnOnce(&mut Command)) -> Option<Self> {
        kvm()?;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("vmd.sock");
        let mut command = command(&socket);
        change(&mut command);
        let child = command.spawn().unwrap();
        let daemon = Self { child, socket, _dir: dir };
        eventually(|| UnixStream::connect(&daemon.socket).is_ok());
        Some(daemon)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let body = body.to_string();
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        // At once: who answers without reading the body may be gone before a second piece.
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    #[track_caller]
    fn done<T: DeserializeOwned>(&self, method: &str, path: &str, body: &Value) -> T {
        let (status, body) = self.ask(method, path, body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    #[track_caller]
    fn refused(&self, method: &str, path: &str, body: &Value, words: &str) {
        let (status, body) = self.ask(method, path, body);
        let error: api::Error = serde_json::from_str(&body).unwrap();
        assert_eq!(status, error.code.http_status());
        assert!(error.message.contains(words) && !error.message.contains('\n'), "{error}");
    }

    fn template(&self, name: &str, code: Vec<u8>) -> Template {
        self.done("POST", "/v1/templates", &tiny(name, code))
    }

    fn clones(&self, template: &str, body: &Value) -> Vec<Clone> {
        self.done("POST", &format!("/v1/templates/{template}/clones"), body)
    }

    /// Process ids of its shells.
    fn shells(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task", self.child.id());
        let tasks = std::fs::read_dir(path).unwrap();
        let children = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default()
        };
        tasks
            .flat_map(|task| children(task).split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect()
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(socket: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashfork-vmd"));
    command.arg("--socket").arg(socket).args(["--pool", "2"]);
    command
}

fn tiny(name: &str, code: Vec<u8>) -> Value {
    json!({ "name": name, "tiny": code, "shape": { "memory_mib": 4, "vcpus": 1, "pages": "small", "disk": false } })
}

/// Signals FORK, then stays.
fn idler() -> Vec<u8> {
    vec![0xba, 0x34, 0x12, 0xb0, 0x10, 0xee, 0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfe]
}

#[track_caller]
fn eventually(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "it did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn templates_and_clones_come_and_go() {
    let Some(daemon) = Daemon::start() else { return };
    let Source::Tiny(code) = guest() else { panic!("no code") };
    let template = daemon.template("t", code);
    assert_eq!((template.clones_made, template.name.as_str()), (0, "t"));
    // Its work is done before it is ever ready: that is an end as good as any.
    let clones = daemon.clones("t", &json!({ "count": 3 }));
    assert_eq!(clones.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["t-1", "t-2", "t-3"]);
    assert!(clones.iter().all(|c| c.state == CloneState::Ended && c.first_exit_ns > 0), "{clones:?}");
    eventually(|| daemon.done::<Template>("GET", "/v1/templates/t", &Value::Null).clones_alive == 0);
    assert_eq!(daemon.ask("DELETE", "/v1/clones/t-1", &Value::Null).0, 204);
    assert_eq!(daemon.ask("DELETE", "/v1/templates/t", &Value::Null).0, 204);
    daemon.refused("GET", "/v1/templates/t", &Value::Null, "no template t");
}

#[test]
fn refusals_say_what_and_what_to_do() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    daemon.refused("POST", "/v1/templates", &tiny("t", idler()), "choose another name");
    daemon.refused("POST", "/v1/templates", &tiny("../x", idler()), "is no name");
    daemon.refused("POST", "/v1/templates/u/clones", &json!({}), "flashfork vm template ls");
    daemon.refused("POST", "/v1/templates/t/clones", &json!({ "count": 0 }), "ask for 1 to");
    daemon.refused("POST", "/v1/templates/t/clones", &json!({ "cuont": 1 }), "cuont");
    daemon.refused("DELETE", "/v1/clones/nobody", &Value::Null, "no clone nobody");
    daemon.refused("GET", "/v2", &Value::Null, "version 1");
    let mut huge = tiny("big", idler());
    huge["shape"]["memory_mib"] = json!(1 << 20);
    daemon.refused("POST", "/v1/templates", &huge, "give less");
    let mut missing = tiny("k", idler());
    missing["tiny"] = Value::Null;
    missing["kernel"] = json!("/no/such/kernel");
    daemon.refused("POST", "/v1/templates", &missing, "/no/such/kernel");
    let mut diskless = tiny("d", idler());
    diskless["disk_read_only"] = json!(true);
    daemon.refused("POST", "/v1/templates", &diskless, "needs an image");
    diskless["disk"] = json!("/dev/null");
    daemon.refused("POST", "/v1/templates", &diskless, "a shape with a disk");
    diskless["shape"]["disk"] = json!(true);
    daemon.refused("POST", "/v1/templates", &diskless, "0 bytes");
    diskless["disk_serial"] = json!("a serial number that is too long");
    daemon.refused("POST", "/v1/templates", &diskless, "no serial number");
    daemon.clones("t", &json!({ "wait": false, "name": "c" }));
    daemon.refused("POST", "/v1/templates/t/clones", &json!({ "wait": false, "name": "c" }), "already");
    daemon.refused("DELETE", "/v1/templates/t", &Value::Null, "has 1 clones");
    let mut limited = tiny("l", idler());
    limited["max_clones"] = json!(1);
    let _: Template = daemon.done("POST", "/v1/templates", &limited);
    daemon.clones("l", &json!({ "wait": false }));
    daemon.refused("POST", "/v1/templates/l/clones", &json!({ "wait": false }), "make a new one");
}

#[test]
fn a_killed_shell_harms_no_other() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let clones = daemon.clones("t", &json!({ "count": 2, "wait": false }));
    // Shells that wait are replaced.
    eventually(|| daemon.shells().len() == 4);
    let waiting: Vec<_> = daemon.shells().into_iter().filter(|pid| clones.iter().all(|c| c.pid != *pid)).collect();
    kill(waiting[0]);
    kill(clones[0].pid);
    let state = |name: &str| daemon.done::<Clone>("GET", &format!("/v1/clones/{name}"), &Value::Null).state;
    eventually(|| state("t-1") == CloneState::Ended);
    let ended = daemon.done::<Clone>("GET", "/v1/clones/t-1", &Value::Null);
    assert!(ended.ended.as_ref().unwrap().contains("SIGKILL") && ended.memory_bytes.is_none(), "{ended:?}");
    assert_eq!(state("t-2"), CloneState::Starting);
    let rolled: Clone = daemon.done("POST", "/v1/clones/t-2/rollback", &Value::Null);
    assert_ne!(rolled.generation, clones[1].generation);
    eventually(|| daemon.shells().len() == 3 && !exists(waiting[0]));
    assert_eq!(daemon.clones("t", &json!({ "count": 3, "wait": false })).len(), 3);
}

#[test]
fn a_killed_daemon_leaves_nothing_that_the_next_one_does_not_clean() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    daemon.clones("t", &json!({ "wait": false }));
    eventually(|| daemon.shells().len() == 3);
    let shells = daemon.shells();
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    eventually(|| !shells.iter().any(|pid| exists(*pid)));
    assert!(daemon.socket.exists());
    daemon.child = command(&daemon.socket).spawn().unwrap();
    eventually(|| UnixStream::connect(&daemon.socket).is_ok());
    let second = command(&daemon.socket).output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("already"), "{second:?}");
    assert_eq!(daemon.done::<Vec<Template>>("GET", "/v1/templates", &Value::Null), []);
}

#[test]
fn three_hundred_clones_leave_no_descriptors_and_no_processes() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let settled = |daemon: &Daemon| eventually(|| daemon.shells().len() == 2);
    settled(&daemon);
    let before = daemon.descriptors();
    for _ in 0..30 {
        for clone in daemon.clones("t", &json!({ "count": 10, "wait": false })) {
            assert_eq!(daemon.ask("DELETE", &format!("/v1/clones/{}", clone.name), &Value::Null).0, 204);
        }
    }
    settled(&daemon);
    eventually(|| daemon.descriptors() <= before);
}

#[test]
fn what_clones_add_is_what_they_write() {
    let Some(daemon) = Daemon::start() else { return };
    // FORK; then writes 64 KB at 0x10000 and signals that with a byte on the console.
    let writer = [
        &[0xba, 0x34, 0x12, 0xb0, 0x10, 0xee][..], // mov dx, 0x1234; mov al, FORK; out dx, al
        &[0xb8, 0x00, 0x10, 0x8e, 0xc0],           // mov ax, 0x1000; mov es, ax
        &[0x31, 0xff, 0xb9, 0x00, 0x80, 0xf3, 0xab], // xor di, di; mov cx, 0x8000; rep stosw
        &[0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfe], // mov dx, 0x3f8; mov al, 'x'; out dx, al; jmp $
    ];
    daemon.template("idle", idler());
    daemon.template("writes", writer.concat());
    let clone = |template: &str| daemon.clones(template, &json!({ "wait": false })).remove(0).name;
    let added = |name: &str| {
        let shown: Clone = daemon.done("GET", &format!("/v1/clones/{name}"), &Value::Null);
        shown.memory_bytes.unwrap()
    };
    let (idle, writes) = (clone("idle"), clone("writes"));
    eventually(|| added(&writes) >= added(&idle) + (48 << 10));
    let difference = added(&writes) - added(&idle);
    assert!(difference < 256 << 10, "{difference}");
    assert!(added(&idle) < 8 << 20, "{}", added(&idle));
    let stats: api::Stats = daemon.done("GET", "/v1/stats", &Value::Null);
    assert_eq!((stats.clones, stats.templates), (2, 2));
    assert!(stats.clone_bytes >= added(&idle) && stats.clone_bytes < 16 << 20, "{stats:?}");
    assert!((4096..2 << 20).contains(&stats.template_bytes), "{stats:?}");
}

#[test]
fn of_ended_clones_the_last_are_remembered() {
    let Some(daemon) = Daemon::start_with(|command| drop(command.args(["--remember", "10"]))) else { return };
    let Source::Tiny(code) = guest() else { panic!("no code") };
    daemon.template("t", code);
    let before = daemon.descriptors();
    for _ in 0..3 {
        daemon.clones("t", &json!({ "count": 5 }));
    }
    let clones = || daemon.done::<Vec<Clone>>("GET", "/v1/clones", &Value::Null);
    eventually(|| clones().len() == 10 && clones().iter().all(|clone| clone.state == CloneState::Ended));
    assert!(clones().iter().all(|clone| clone.ended.as_deref().is_some_and(|how| how.contains("status 0"))));
    daemon.refused("GET", "/v1/clones/t-1", &Value::Null, "no clone t-1");
    eventually(|| daemon.shells().len() == 2 && daemon.descriptors() <= before);
}

#[test]
fn a_console_has_what_was_written_and_takes_what_is_typed() {
    let Some(daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    daemon.clones("t", &json!({ "wait": false }));
    let mut stream = UnixStream::connect(&daemon.socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
        .write_all(
            b"POST /v1/clones/t-1/console HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: flashfork\r\n\r\n",
        )
        .unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\nx") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    assert!(bytes.starts_with(b"HTTP/1.1 101"));
    stream.write_all(b"typed").unwrap();
    assert_eq!(daemon.ask("DELETE", "/v1/clones/t-1", &Value::Null).0, 204);
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "the end of the clone is the console's");
}

#[test]
fn without_kvm_the_daemon_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vmd.sock");
    let mut command = command(&socket);
    // SAFETY: between fork and exec, system calls only: what is open or may be opened by name is no /dev/kvm.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            Ok(rustix::mount::mount("none", "/dev", "tmpfs", MountFlags::empty(), None)?)
        });
    }
    let Ok(child) = command.spawn() else { return eprintln!("skipped: no user namespaces") };
    let daemon = Daemon { child, socket, _dir: dir };
    eventually(|| UnixStream::connect(&daemon.socket).is_ok());
    let host: api::Host = daemon.done("POST", "/v1/host", &Value::Null);
    assert!(host.kvm == api::HostKvm::None && host.detail.contains("modprobe"), "{host:?}");
    daemon.refused("POST", "/v1/templates", &tiny("t", idler()), "cannot open /dev/kvm");
    assert!(daemon.done::<Vec<Template>>("GET", "/v1/templates", &Value::Null).is_empty());
}

#[test]
fn templates_are_saved_and_loaded() {
    let Some(daemon) = Daemon::start() else { return };
    let Source::Tiny(code) = guest() else { panic!("no code") };
    let mut limited = tiny("t", code);
    limited["max_clones"] = json!(2);
    let _: Template = daemon.done("POST", "/v1/templates", &limited);
    daemon.clones("t", &json!({}));
    let directory = daemon.socket.with_file_name("saved");
    let _: Template = daemon.done("POST", "/v1/templates/t/save", &json!({ "directory": directory }));
    let loaded: Template = daemon.done("POST", "/v1/templates/load", &json!({ "name": "u", "directory": directory }));
    assert_eq!((loaded.name.as_str(), loaded.boot_ns), ("u", None));
    assert_eq!((loaded.clones_made, loaded.max_clones), (1, Some(2)), "it goes on where it was saved");
    assert_eq!(daemon.clones("u", &json!({})).len(), 1);
    daemon.refused("POST", "/v1/templates/u/clones", &json!({}), "make a new one");
    std::fs::write(directory.join("manifest"), b"damaged").unwrap();
    daemon.refused("POST", "/v1/templates/load", &json!({ "name": "v", "directory": directory }), "manifest");
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
