//! Programs in C that are ready in their middle, and what comes of them plainly and in clones.

use crate::place::{Place, both, good};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Before every program: started plainly, `READY` does nothing.
const BEGIN: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#define READY (flashfork_ready ? flashfork_ready(0, 0) : 0)
/* Until a thread of this process sleeps in the kernel, by its number. */
static void until_asleep(int tid) {
    char path[64], text[512];
    for (;;) {
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        int fd = open(path, O_RDONLY | O_CLOEXEC), n = read(fd, text, sizeof text - 1);
        close(fd);
        if (n > 0) { text[n] = 0; char *end = strrchr(text, ')'); if (end && end[2] == 'S') return; }
        usleep(1000);
    }
}
static void *idle(void *x) { for (;;) pause(); }
/* Makes a socket that listens, and returns its port. */
static int listens(int *fd) {
    *fd = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in a = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}; socklen_t n = sizeof a;
    bind(*fd, (void *)&a, n); listen(*fd, 16); getsockname(*fd, (void *)&a, &n); return ntohs(a.sin_port);
}
/* Makes a thread that does nothing. */
static pthread_t another(void) { pthread_t t; pthread_create(&t, 0, idle, 0); return t; }
"#;

pub struct Program {
    pub place: Place,
    path: PathBuf,
}

impl Program {
    /// A program of these lines.
    pub fn new(source: &str) -> Program {
        let place = Place::new();
        let path = place.program_with("program", &format!("{BEGIN}{source}"), &["-lm", "-fexceptions"]);
        Program { place, path }
    }

    pub fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// A template `t` of it, ready at its call.
    pub fn warm(&self, arguments: &[&str]) {
        good(self.try_warm(arguments));
    }

    pub fn try_warm(&self, arguments: &[&str]) -> Output {
        self.place.run(&[&self.warms()[..], arguments].concat())
    }

    /// The command of a template `t` of it.
    pub fn warms(&self) -> [&str; 7] {
        ["warm", "--threads", "--ready", "call", "t", "--", self.path()]
    }

    /// What came of a clone of that.
    pub fn cloned(&self) -> Output {
        self.place.cloned()
    }

    /// What comes of it when it is started plainly.
    pub fn plain(&self, arguments: &[&str]) -> Output {
        Command::new(&self.path).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// So many clones, one by one and then all together, do what the program does.
    pub fn is_the_same_in_clones(&self, count: usize) {
        let plain = self.plain(&[]);
        assert!(!plain.stdout.is_empty(), "it says something");
        self.warm(&[]);
        let check = |clone: &Output| {
            assert_eq!(both(clone), both(&plain));
            assert_eq!(clone.status.code(), plain.status.code());
        };
        for _ in 0..count {
            check(&self.cloned());
        }
        let all: Vec<_> = (0..count)
            .map(|_| {
                self.place.flashfork(&["clone", "t"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for clone in all {
            check(&clone.wait_with_output().unwrap());
        }
    }
}
