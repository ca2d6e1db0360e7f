/* What every C program of these tests begins with. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
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
#include <netinet/in.h>
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
#include <sys/ptrace.h>
#include <sys/random.h>
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
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
int flashfork_ready(int *, char ***) __attribute__((weak));
int flashfork_on_clone(int (*)(void *), void *) __attribute__((weak));
/* Started plainly, this does nothing. */
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
/* The same of a thread that tells its number before. */
static void until_tid_asleep(volatile int *tid) { while (!*tid) usleep(1000); until_asleep(*tid); }
/* Makes a socket that listens, and says where. */
static int listener(struct sockaddr_in *a) {
	int fd = socket(AF_INET, SOCK_STREAM, 0); socklen_t n = sizeof *a;
	*a = (struct sockaddr_in){AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
	bind(fd, (void *)a, n); listen(fd, 16); getsockname(fd, (void *)a, &n); return fd;
}
/* The same, and returns its port. */
static int listens(int *fd) { struct sockaddr_in a; *fd = listener(&a); return ntohs(a.sin_port); }
/* Connects to it. */
static int connected(struct sockaddr_in *a) { int fd = socket(AF_INET, SOCK_STREAM, 0); connect(fd, (void *)a, sizeof *a); return fd; }
/* Makes a thread that does this. */
static pthread_t thread_of(void *(*work)(void *)) { pthread_t t; pthread_create(&t, 0, work, 0); return t; }
/* Makes a thread that does nothing. */
static pthread_t another(void) { return thread_of(idle); }
/* Blocks signals, of which the other may be 0. */
static sigset_t blocked(int one, int other) {
	sigset_t s; sigemptyset(&s); sigaddset(&s, one); if (other) sigaddset(&s, other); pthread_sigmask(SIG_BLOCK, &s, 0); return s;
}
