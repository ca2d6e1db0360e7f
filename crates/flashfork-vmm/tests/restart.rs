//! Templates and clones that outlive their daemon, however it ends: the real programs, seen through the socket.

#[path = "common/daemon.rs"]
mod client;
mod common;

use client::{Daemon, PATIENCE, command, eventually, exists, idler, is_store, kill, tiny};
use flashfork_proto::api::{Clone, CloneState, Template};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The same daemon, after it was sent `signal`, and another has taken its place.
fn restart(daemon: &mut Daemon, signal: Signal) {
    kill_process(Pid::from_child(&daemon.child), signal).unwrap();
    daemon.child.wait().unwrap();
    again(daemon);
}

fn again(daemon: &mut Daemon) {
    daemon.child = command(&daemon.socket).spawn().unwrap();
    eventually(|| UnixStream::connect(&daemon.socket).is_ok());
}

fn shown(daemon: &Daemon, name: &str) -> Clone {
    daemon.done("GET", &format!("/v1/clones/{name}"), &Value::Null)
}

fn removed(daemon: &Daemon, path: &str) {
    let (status, why) = daemon.ask("DELETE", path, &Value::Null);
    assert_eq!(status, 204, "{why}");
}

fn store_socket(daemon: &Daemon) -> PathBuf {
    daemon.socket.with_file_name("vmd.sock.store")
}

fn connect(daemon: &Daemon) -> OwnedFd {
    let stream = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&stream, &SocketAddrUnix::new(store_socket(daemon)).unwrap()).unwrap();
    stream
}

/// Process id of its store.
fn store_of(daemon: &Daemon) -> u32 {
    let pid = || socket_peercred(connect(daemon)).unwrap().pid.as_raw_pid().cast_unsigned();
    // It has its socket from the daemon.
    eventually(|| is_store(pid()));
    pid()
}

#[test]
fn clones_and_templates_live_on_over_their_daemon_s_end() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let before = daemon.clones("t", &json!({ "count": 2, "wait": false, "job": "it" }));
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL] {
        restart(&mut daemon, signal);
        let after: Vec<Clone> = daemon.done("GET", "/v1/clones", &Value::Null);
        for (before, after) in before.iter().zip(&after) {
            assert_eq!((&before.name, before.pid, &before.generation), (&after.name, after.pid, &after.generation));
            assert_eq!((before.cid, before.claim, before.state), (after.cid, after.claim, after.state));
            assert!(exists(after.pid) && after.memory_bytes.is_some(), "{after:?}");
        }
        let template: Template = daemon.done("GET", "/v1/templates/t", &Value::Null);
        assert_eq!((template.clones_made, template.clones_alive, template.shared_bytes), (2, 2, 0));
    }
    // All can be done that could be before.
    let rolled: Clone = daemon.done("POST", "/v1/clones/t-1/rollback", &Value::Null);
    assert_ne!(rolled.generation, before[0].generation);
    let fork = json!({ "count": 1, "now": true, "wait": false });
    let forked: flashfork_proto::api::Forked = daemon.done("POST", "/v1/clones/t-2/fork", &fork);
    assert_eq!(forked.clones[0].forked_from.as_deref(), Some("t-2"));
    let new = daemon.clones("t", &json!({ "wait": false }));
    assert_eq!(new[0].name, "t-5", "no number is given twice");
    assert!(before.iter().all(|clone| clone.cid != new[0].cid));
    restart(&mut daemon, Signal::KILL);
    daemon.refused("DELETE", "/v1/templates/t", &Value::Null, "3 clones");
    for clone in ["t-1", "t-2", "t-4", "t-5"] {
        assert!(exists(shown(&daemon, clone).pid));
        removed(&daemon, &format!("/v1/clones/{clone}"));
    }
    eventually(|| daemon.done::<Template>("GET", "/v1/templates/t", &Value::Null).clones_alive == 0);
    removed(&daemon, "/v1/templates/t");
    restart(&mut daemon, Signal::KILL);
    assert_eq!(daemon.done::<Vec<Clone>>("GET", "/v1/clones", &Value::Null).len(), 0);
    assert_eq!(daemon.done::<Vec<Template>>("GET", "/v1/templates", &Value::Null), []);
    eventually(|| before.iter().chain(&new).all(|clone| !exists(clone.pid)));
}

#[test]
fn a_clone_that_ended_while_there_was_no_daemon_is_shown_as_ended_and_its_template_goes() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let clones = daemon.clones("t", &json!({ "count": 2, "wait": false }));
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    kill(clones[0].pid);
    eventually(|| !exists(clones[0].pid));
    again(&mut daemon);
    eventually(|| shown(&daemon, "t-1").state == CloneState::Ended);
    assert!(shown(&daemon, "t-1").ended.unwrap().contains("its shell ended"));
    // It was seen to end, and the next daemon knows it, too.
    restart(&mut daemon, Signal::KILL);
    assert_eq!(shown(&daemon, "t-1").state, CloneState::Ended);
    assert_eq!(shown(&daemon, "t-2").state, CloneState::Starting);
    removed(&daemon, "/v1/clones/t-1");
    removed(&daemon, "/v1/clones/t-2");
    eventually(|| !exists(clones[1].pid));
    removed(&daemon, "/v1/templates/t");
    let store = store_of(&daemon);
    kill_process(Pid::from_child(&daemon.child), Signal::TERM).unwrap();
    daemon.child.wait().unwrap();
    eventually(|| !exists(store));
    assert!(!store_socket(&daemon).exists(), "nothing is held");
}

#[test]
fn what_waits_ends_with_its_daemon_and_clones_end_with_daemon_and_store() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let clones = daemon.clones("t", &json!({ "count": 2, "wait": false }));
    daemon.settle_with(2);
    let waiting: Vec<_> = daemon.shells().into_iter().filter(|pid| clones.iter().all(|c| c.pid != *pid)).collect();
    // Neither can do anything about it: as if it had been taken over.
    for pid in waiting.iter().chain(clones.iter().map(|clone| &clone.pid)) {
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::STOP).unwrap();
    }
    let store = store_of(&daemon);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    eventually(|| waiting.iter().all(|pid| !exists(*pid)));
    assert!(clones.iter().all(|clone| exists(clone.pid)));
    kill(store);
    eventually(|| clones.iter().all(|clone| !exists(clone.pid)));
    again(&mut daemon);
    assert_eq!(daemon.done::<Vec<Template>>("GET", "/v1/templates", &Value::Null), []);
}

#[test]
fn a_store_that_ends_is_replaced_by_one_that_has_everything() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let clones = daemon.clones("t", &json!({ "count": 2, "wait": false }));
    let place = || std::fs::metadata(store_socket(&daemon)).ok().map(|place| (place.ctime(), place.ctime_nsec()));
    // One that doesn't read is as good as none.
    for signal in [Signal::KILL, Signal::STOP] {
        let (store, before) = (store_of(&daemon), place());
        kill_process(Pid::from_raw(store.cast_signed()).unwrap(), signal).unwrap();
        eventually(|| {
            // Until there is no more room for it.
            let _: Clone = daemon.done("POST", "/v1/clones/t-2/rollback", &Value::Null);
            ![before, None].contains(&place())
        });
        eventually(|| !exists(store));
        // It has everything before anything else is put.
        let _: Clone = daemon.done("POST", "/v1/clones/t-2/rollback", &Value::Null);
    }
    restart(&mut daemon, Signal::KILL);
    assert!(clones.iter().all(|clone| shown(&daemon, &clone.name).pid == clone.pid && exists(clone.pid)));
    daemon.clones("t", &json!({ "wait": false }));
}

#[test]
fn strangers_and_nonsense_get_nothing_of_a_store_and_do_it_no_harm() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let clone = daemon.clones("t", &json!({ "wait": false })).remove(0);
    let store = store_of(&daemon);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let mut seed = 7_u32;
    for length in [0, 1, 8, 13, 64, 4096, 100_000] {
        let peer = connect(&daemon);
        let mut bytes = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let nonsense: Vec<u8> = (0..length).map(|_| bytes()).collect();
        // It may not be read at all.
        let _ = rustix::net::send(&peer, &nonsense, SendFlags::NOSIGNAL);
        assert_eq!(rustix::io::read(&peer, &mut [0; 64]).unwrap_or(0), 0, "nothing is said");
    }
    // The greeting is right, and what follows isn't.
    let peer = connect(&daemon);
    rustix::net::send(&peer, b"FLFKSTO\n\x01", SendFlags::NOSIGNAL).unwrap();
    assert_eq!(rustix::io::read(&peer, &mut [0; 64]), Ok(9));
    rustix::net::send(&peer, &[9; 100], SendFlags::NOSIGNAL).unwrap();
    assert_eq!(rustix::io::read(&peer, &mut [0; 64]).unwrap_or(0), 0);
    drop(peer);
    // One of another version is told this one's.
    let peer = connect(&daemon);
    rustix::net::send(&peer, b"FLFKSTO\n\x7f", SendFlags::NOSIGNAL).unwrap();
    assert_eq!(rustix::io::read(&peer, &mut [0; 64]), Ok(9));
    assert_eq!(rustix::io::read(&peer, &mut [0; 64]).unwrap_or(0), 0);
    drop(peer);
    if rustix::process::geteuid().is_root() {
        // Another user, for whom the place is open.
        for path in [daemon.dir.path(), &store_socket(&daemon)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let said = Command::new("python3")
            .args(["-c", "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); s.send(b'FLFKSTO\\n\\x01'); print(len(s.recv(64)))"])
            .arg(store_socket(&daemon))
            .uid(65534)
            .output();
        let said = said.unwrap();
        let said = [said.stdout, said.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            said.trim() == "0" || said.contains("ConnectionResetError") || said.contains("BrokenPipeError"),
            "{said}"
        );
    }
    assert!(exists(store));
    again(&mut daemon);
    assert_eq!((store_of(&daemon), shown(&daemon, "t-1").pid), (store, clone.pid));
}

/// What was written down by a version of flashfork that this one can't read.
#[test]
fn what_can_not_be_read_is_ended_and_told() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.template("t", idler());
    let clones = daemon.clones("t", &json!({ "count": 2, "wait": false }));
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    // This test is a daemon that writes in another way: of one clone.
    let peer = connect(&daemon);
    let send = |bytes: &[u8]| rustix::net::send(&peer, bytes, SendFlags::NOSIGNAL).unwrap();
    let mut packet = [0; 200_000];
    let mut receive = || rustix::io::read(&peer, &mut packet).map(|length| packet[..length].to_vec()).unwrap();
    send(b"FLFKSTO\n\x01");
    receive();
    send(&[4]);
    // Its number, and that it is a clone, are in the first bytes.
    let held: Vec<_> = std::iter::repeat_with(receive).take_while(|held| held[0] == 0).collect();
    let first = held.iter().find(|held| held[2] == 1).unwrap();
    send(&[0, first[1], 1, 3, b'n', b'e', b'w']);
    drop(peer);
    let mut child = command(&daemon.socket);
    daemon.child = child.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(daemon.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("a clone of an earlier daemon can't be taken over and ends"), "{said}");
    eventually(|| UnixStream::connect(&daemon.socket).is_ok());
    let left: Vec<Clone> = daemon.done("GET", "/v1/clones", &Value::Null);
    assert_eq!(left.len(), 1);
    eventually(|| clones.iter().filter(|clone| exists(clone.pid)).count() == 1);
}

/// What was acknowledged, and what may or may not be, because its removal was not.
#[derive(Default)]
struct Told {
    templates: Vec<String>,
    clones: BTreeMap<String, u32>,
    uncertain: Option<String>,
}

/// An answer, if all of it comes.
fn attempt(socket: &Path, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
    let body = body.to_string();
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json");
    stream.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head[9..12].parse().unwrap(), body.to_owned()))
}

impl Told {
    /// Asks for one thing after the other until there is no answer.
    fn ask(&mut self, socket: &Path, random: &mut impl FnMut(usize) -> usize) -> Option<()> {
        loop {
            self.uncertain = None;
            let template = self.templates.get(random(self.templates.len().max(1))).cloned();
            let clone = self.clones.keys().nth(random(self.clones.len().max(1))).cloned();
            let made: Vec<Clone> = match (random(6), template, clone) {
                (1 | 2, Some(template), _) if self.clones.len() < 12 => {
                    let body = json!({ "count": 1 + random(3), "wait": false });
                    let (status, answer) = attempt(socket, "POST", &format!("/v1/templates/{template}/clones"), &body)?;
                    assert_eq!(status, 200, "{answer}");
                    serde_json::from_str(&answer).unwrap()
                }
                (3, _, Some(clone)) if self.clones.len() < 12 => {
                    let body = json!({ "count": 1, "now": true, "wait": false });
                    let (status, answer) = attempt(socket, "POST", &format!("/v1/clones/{clone}/fork"), &body)?;
                    assert_eq!(status, 200, "{answer}");
                    serde_json::from_str::<flashfork_proto::api::Forked>(&answer).unwrap().clones
                }
                (4, _, Some(clone)) => {
                    let answer = attempt(socket, "POST", &format!("/v1/clones/{clone}/rollback"), &Value::Null)?;
                    assert_eq!(answer.0, 200, "{}", answer.1);
                    Vec::new()
                }
                (5, _, Some(clone)) => {
                    self.clones.remove(&clone);
                    self.uncertain = Some(clone.clone());
                    let answer = attempt(socket, "DELETE", &format!("/v1/clones/{clone}"), &Value::Null)?;
                    assert_eq!(answer.0, 204, "{}", answer.1);
                    Vec::new()
                }
                _ if self.templates.len() < 4 => {
                    let name = format!("t{}", random(1 << 30));
                    let (status, answer) = attempt(socket, "POST", "/v1/templates", &tiny(&name, idler()))?;
                    assert_eq!(status, 200, "{answer}");
                    self.templates.push(name);
                    Vec::new()
                }
                _ => Vec::new(),
            };
            self.clones.extend(made.into_iter().map(|clone| (clone.name, clone.pid)));
        }
    }
}

/// What descriptors of a process are.
fn descriptors(pid: u32) -> Vec<String> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// The shells that the daemons of a store have started, by the pipe that all have in common.
fn on_leash(store: u32) -> Vec<u32> {
    let own = descriptors(store);
    let is_shell = |pid: &u32| {
        let leash = std::fs::read_link(format!("/proc/{pid}/fd/2")).unwrap_or_default().display().to_string();
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim() == "flashfork-shell" && exists(*pid) && leash.starts_with("pipe:") && own.contains(&leash)
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    all.filter(is_shell).collect()
}

/// Numbers below another (xorshift).
fn generator(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    }
}

/// 15 times; 300 with `FLASHFORK_TEST_ALL=1`.
#[test]
fn a_daemon_that_is_killed_at_any_moment_has_lost_nothing_and_left_nothing_unknown() {
    let Some(mut daemon) = Daemon::start() else { return };
    let all = std::env::var_os("FLASHFORK_TEST_ALL").is_some_and(|all| all == "1");
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    println!("seed {seed}");
    let (mut moments, mut choices) = (generator(seed), generator(seed.rotate_left(32) | 1));
    let mut told = Told::default();
    daemon.template("first", idler());
    let store = store_of(&daemon);
    let socket = daemon.socket.clone();
    for _ in 0..if all { 300 } else { 15 } {
        let moment = Duration::from_micros(moments(400_000) as u64);
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| told.ask(&socket, &mut choices));
            std::thread::sleep(moment);
            daemon.child.kill().unwrap();
            daemon.child.wait().unwrap();
            assert_eq!(asks.join().unwrap(), None);
        });
        again(&mut daemon);
        let clones: Vec<Clone> = daemon.done("GET", "/v1/clones", &Value::Null);
        let templates: Vec<Template> = daemon.done("GET", "/v1/templates", &Value::Null);
        for (name, pid) in &told.clones {
            let found = clones.iter().find(|clone| clone.name == *name);
            assert!(found.is_some_and(|found| found.pid == *pid && found.ended.is_none()), "{name} {pid}: {found:?}");
        }
        assert!(told.templates.iter().all(|name| templates.iter().any(|template| template.name == *name)));
        // What was not acknowledged may be there, and then it can be removed.
        for clone in clones.iter().filter(|clone| !told.clones.contains_key(&clone.name)) {
            removed(&daemon, &format!("/v1/clones/{}", clone.name));
        }
        assert_eq!(store_of(&daemon), store);
        if rustix::process::geteuid().is_root() {
            eventually(|| {
                let stats = daemon.stats();
                let waiting: u32 = stats.pools.iter().map(|pool| pool.ready + pool.primed).sum();
                on_leash(store).len() == waiting as usize + told.clones.len()
            });
        }
    }
    for clone in daemon.done::<Vec<Clone>>("GET", "/v1/clones", &Value::Null) {
        removed(&daemon, &format!("/v1/clones/{}", clone.name));
    }
    for template in daemon.done::<Vec<Template>>("GET", "/v1/templates", &Value::Null) {
        let path = format!("/v1/templates/{}", template.name);
        eventually(|| daemon.done::<Template>("GET", &path, &Value::Null).clones_alive == 0);
        removed(&daemon, &path);
    }
    eventually(|| on_leash(store).is_empty());
    eventually(|| descriptors(store).iter().all(|file| !file.contains("memfd:") && !file.contains("pidfd")));
}
