//! What clones could not have is refused, with the reason in words.

use crate::place::{line, until};
use crate::programs::Program;

/// Programs that have one thing, and what is said of it.
const REFUSED: [(&str, &str); 11] = [
    ("if (!fork()) { for (;;) pause(); }", "a child process, which its clones would not have"),
    (r#"int fd = open("/tmp", O_RDONLY); flock(fd, LOCK_EX);"#, "a lock on a file"),
    (r#"int fd = inotify_init(); inotify_add_watch(fd, "/tmp", IN_CREATE);"#, "watches of inotify"),
    (
        "int fd = memfd_create(\"heap\", 0); ftruncate(fd, 4096); mmap(0, 4096, 3, MAP_SHARED, fd, 0);",
        "shared memory that is mapped twice or from a file of memory",
    ),
    (
        "int fd = socket(AF_INET, SOCK_DGRAM, 0); struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}; bind(fd, (void *)&a, sizeof a);",
        "a socket that clones can't have",
    ),
    ("syscall(SYS_pidfd_open, getpid(), 0);", "a descriptor that clones can't have"),
    (
        "int p[2], set = epoll_create1(0); pipe(p); struct epoll_event e = {EPOLLIN, {0}}; epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e); int copy = dup(p[0]); close(p[0]); (void)copy;",
        "an epoll set with a file whose descriptor is closed",
    ),
    ("unshare(CLONE_FS);", "a thread with files or a directory of its own"),
    ("unshare(CLONE_NEWUTS);", "a namespace or root directory of its own"),
    (
        "int z = syscall(SYS_clone, CLONE_VM | SIGCHLD, malloc(65536) + 65536, 0, 0, 0); if (!z) for (;;) syscall(SYS_pause);",
        "a child process",
    ),
    (
        "char b[65536] = {0}; int s[2]; socketpair(AF_UNIX, SOCK_DGRAM, 0, s); write(s[0], b, 10);",
        "a socket pair or pipe with more in it",
    ),
];

#[test]
fn what_clones_could_not_have_is_said() {
    for (statement, reason) in REFUSED {
        let program = Program::new(&format!(
            "static void *other(void *x) {{ for (;;) pause(); }}\nint main(void) {{ pthread_t t; pthread_create(&t, 0, other, 0);\n{statement}\nREADY; return 0; }}"
        ));
        let refused = program.try_warm(&[]);
        let said = line(&refused);
        assert!(said.contains("can't be a template with threads: it has") && said.contains(reason), "{said}");
        assert!(program.place.list().is_empty());
        until("all is gone", || crate::place::pids(&program.place, "").is_empty());
    }
}

#[test]
fn a_main_thread_that_has_ended_is_refused() {
    let program = Program::new(
        "static pthread_t first; static void *other(void *x) { pthread_join(first, 0); READY; return 0; }
int main(void) { first = pthread_self(); pthread_t t; pthread_create(&t, 0, other, 0); pthread_exit(0); }",
    );
    let refused = program.try_warm(&[]);
    assert!(line(&refused).contains("it has no main thread any more"), "{}", line(&refused));
}

#[test]
fn a_program_that_becomes_another_is_refused() {
    let program = Program::new(r#"int main(void) { execl("/bin/sleep", "sleep", "100", NULL); return 1; }"#);
    let refused = program.try_warm(&[]);
    assert!(line(&refused).contains("another program (exec)"), "{}", line(&refused));
    // Where it isn't waited for a call it is found when it is stopped.
    let command = ["warm", "--threads", "--unfinished", "--ready", "idle:0.2", "t", "--", program.path()];
    let refused = program.place.run(&command);
    assert!(line(&refused).contains("become another program (exec)"), "{}", line(&refused));
    until("all is gone", || crate::place::pids(&program.place, "").is_empty());
}
