//! The namespaces that a template and its clones need, and in words what is missing where they can't be had.

use crate::process::check;
use std::io::{Error, Result};

/// What goes on without them.
const STILL: &str = "; templates of programs with one thread (without --threads) need no namespaces";

/// Goes to a namespace of mounts, and of users where this process has no right to one otherwise: the program's user
/// keeps its number. Gives whether there is one of users: then the program has no capabilities.
pub fn enter() -> std::result::Result<bool, String> {
    let user = !may_administer();
    // SAFETY: asks for numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if user {
        unshare(libc::CLONE_NEWUSER).map_err(|e| no_users(&e))?;
        let map = |file: &str, text: String| {
            std::fs::write(format!("/proc/self/{file}"), text).map_err(|e| format!("can't write {file}: {e}{STILL}"))
        };
        // There is none before Linux 3.19.
        let _ = std::fs::write("/proc/self/setgroups", "deny");
        map("uid_map", format!("{uid} {uid} 1"))?;
        map("gid_map", format!("{gid} {gid} 1"))?;
    }
    unshare(libc::CLONE_NEWNS).map_err(|e| no_others(&e))?;
    // What is mounted elsewhere later comes here, and nothing goes the other way.
    // SAFETY: strings with their NUL.
    check(unsafe {
        let flags = libc::MS_REC | libc::MS_SLAVE;
        libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null())
    })
    .map_err(|e| no_others(&e))?;
    new_time([0, 0]).map_err(|e| format!("can't have a time namespace (Linux 5.6, CONFIG_TIME_NS): {e}{STILL}"))?;
    if user {
        keep_capabilities().map_err(|e| no_others(&e))?;
    }
    Ok(user)
}

/// Why there is no user namespace.
fn no_users(e: &Error) -> String {
    let why = match e.raw_os_error() {
        Some(libc::ENOSPC) => "no user namespace is left: raise sysctl user.max_user_namespaces".into(),
        Some(libc::EPERM | libc::EACCES) => {
            "may not make user namespaces: a container's filter forbids it, or sysctl kernel.unprivileged_userns_clone \
             or kernel.apparmor_restrict_unprivileged_userns does"
                .into()
        }
        _ => format!("can't make a user namespace: {e}"),
    };
    format!("{why}{STILL}")
}

/// Why there is no other namespace, although there is one of users.
pub fn no_others(e: &Error) -> String {
    let why = match e.raw_os_error() {
        Some(libc::ENOSPC) => {
            "no namespace is left: raise sysctl user.max_pid_namespaces and user.max_mnt_namespaces".into()
        }
        Some(libc::EPERM | libc::EACCES) => {
            "may not make namespaces of processes and mounts: a container or AppArmor (sysctl \
             kernel.apparmor_restrict_unprivileged_userns) forbids it"
                .into()
        }
        Some(libc::ENOSYS) => "may not call clone3: a container's filter forbids it".into(),
        _ => format!("can't make namespaces of processes and mounts: {e}"),
    };
    format!("{why}{STILL}")
}

/// Why /proc could not be mounted.
pub fn no_proc(e: &Error) -> String {
    format!("can't mount /proc in a namespace of its own: {e}; a container hides parts of /proc, perhaps{STILL}")
}

fn unshare(what: i32) -> Result<()> {
    // SAFETY: takes a number; this process has one thread.
    check(unsafe { libc::unshare(what) })
}

/// Whether this process may make namespaces without one of users.
fn may_administer() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}

/// Lets the shim in the program have them, whose maker needs them: they outlast its exec.
fn keep_capabilities() -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let (header, mut sets) = ([VERSION_3, 0u32], [0u32; 6]);
    // SAFETY: a header and three sets of two words each, as the calls have them.
    unsafe {
        check(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) as i32)?;
        // Effective, permitted, inheritable; then the upper halves.
        (sets[2], sets[5]) = (sets[1], sets[4]);
        check(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) as i32)?;
        let has = |capability: u32| sets[if capability < 32 { 1 } else { 4 }] >> (capability % 32) & 1 == 1;
        for capability in (0..64).filter(|capability| has(*capability)) {
            check(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0))?;
        }
    }
    Ok(())
}

/// A namespace of time, in which `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` now show these nanoseconds; 0 for what they
/// show here.
pub fn new_time(clocks: [u64; 2]) -> Result<std::fs::File> {
    unshare(libc::CLONE_NEWTIME)?;
    let mut text = String::new();
    for (name, clock, wanted) in
        [("monotonic", libc::CLOCK_MONOTONIC, clocks[0]), ("boottime", libc::CLOCK_BOOTTIME, clocks[1])]
    {
        if wanted != 0 {
            let offset = wanted as i64 - now(clock);
            let (seconds, rest) = (offset.div_euclid(1_000_000_000), offset.rem_euclid(1_000_000_000));
            text += &format!("{name} {seconds} {rest}\n");
        }
    }
    if !text.is_empty() {
        std::fs::write("/proc/self/timens_offsets", text)?;
    }
    std::fs::File::open("/proc/self/ns/time_for_children")
}

fn now(clock: i32) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
