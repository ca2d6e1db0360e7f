/* What every program here stands on: the compiler includes it before each. A program shows one behaviour and ends with 0
   (it holds), 77 (it can't be shown on this machine; one line says why) or 1 (it does not hold; one line says where). By
   hand:

       cc -include behaviour.h -O1 -pthread -o dontneed traps/dontneed.c
       FLASHFORK_ENGINE=fork LD_PRELOAD=libflashfork_preload.so ./dontneed; echo $?

   Lines `preload:`, `env:`, `cflags:` and `compiler:` in a program's first comment say what it needs
   besides. */
#ifndef BEHAVIOUR_H
#define BEHAVIOUR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of younger headers than some machines have. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* The shim's own calls (crates/flashfork-preload/src/control.rs). Weak: without the shim the program says so. */
int flashfork_preload_seal(void) __attribute__((weak));
int flashfork_preload_unseal(void) __attribute__((weak));
int flashfork_preload_drop_refills(void) __attribute__((weak));

#define MB (1ul << 20)
#define PAGE 4096ul
#define RW (PROT_READ | PROT_WRITE)

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

#define SKIP(...) \
	do { \
		fprintf(stderr, __VA_ARGS__); \
		fputc('\n', stderr); \
		_exit(77); \
	} while (0)

/* Threads that have to begin, and to end. */
#define START(thread, work, given) CHECK(pthread_create(thread, NULL, work, given) == 0)
#define JOIN(thread) CHECK(pthread_join(thread, NULL) == 0)

/* Private anonymous memory that begins at a multiple of 2 MB and touches no other mapping, so that the kernel merges it
   with none. NULL when mmap refuses. The addresses are never free in between: another thread's mapping would be replaced. */
static inline char *map_alone(size_t len, int prot, int flags)
{
	size_t reserved = len + 6 * MB;
	char *at = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	char *start = (char *)(((uintptr_t)at + 4 * MB - 1) & ~(2 * MB - 1));
	char *end = start + len;
	if (mmap(start, len, prot, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		munmap(at, reserved);
		return NULL;
	}
	munmap(at, (size_t)(start - at));
	munmap(end, (size_t)(at + reserved - end));
	return start;
}

/* Every word of a pattern differs from its neighbours and is never zero. */
static inline uint64_t pattern(size_t i, uint64_t seed)
{
	return (i * 0x9e3779b97f4a7c15u ^ seed) | 1;
}

static inline void fill(void *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len / 8; i++)
		((uint64_t *)p)[i] = pattern(i, seed);
}

static inline int intact(const void *p, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len / 8; i++)
		if (((const uint64_t *)p)[i] != pattern(i, seed))
			return 0;
	return 1;
}

static inline int zeros(const void *p, size_t len)
{
	const char *c = p;
	return len == 0 || (c[0] == 0 && memcmp(c, c + 1, len - 1) == 0);
}

/* Whether memory can be discarded, and is zeros then. */
static inline int discard_zeros(void *p, size_t len)
{
	return madvise(p, len, MADV_DONTNEED) == 0 && zeros(p, len);
}

/* Ordinary memory, filled: what a seal is for. */
static inline char *memory(size_t len, uint64_t seed)
{
	char *p = map_alone(len, RW, MAP_PRIVATE);
	CHECK(p != NULL);
	fill(p, len, seed);
	return p;
}

/* How often to do again what goes wrong now and then: a twelfth of it at an emulator's speed, unless everything is wanted. */
static inline size_t often(size_t count)
{
	return getenv("FLASHFORK_LAB") && !getenv("FLASHFORK_TEST_ALL") ? (count + 11) / 12 : count;
}

/* Whether to do it once more, for the `turn`th time: not on a machine so busy that this has taken half a minute. */
static inline int again(size_t turn, size_t count)
{
	static time_t begin;
	struct timespec now;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	if (turn == 0)
		begin = now.tv_sec;
	return turn < count && now.tv_sec - begin < 30;
}

/* How many bytes of a range are mappings of the engine's memfds. */
static inline size_t sealed_bytes(const void *p, size_t len)
{
	size_t from = (size_t)p, to = from + len < from ? SIZE_MAX : from + len, start, end, sum = 0;
	char line[8192];
	FILE *maps = fopen("/proc/thread-self/maps", "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "/memfd:flashfork:") && sscanf(line, "%zx-%zx", &start, &end) == 2 && start < to && end > from)
			sum += (end < to ? end : to) - (start > from ? start : from);
	fclose(maps);
	return sum;
}

static inline int all_sealed(const void *p, size_t len)
{
	return sealed_bytes(p, len) == len;
}

#define ALL NULL, SIZE_MAX

/* The value of a field ("VmFlags", "Rss" ...) in the smaps entry of the mapping that holds `p`. */
static inline const char *smaps(const void *p, const char *field)
{
	static char line[8192];
	size_t start, end, here = 0, n = strlen(field);
	FILE *file = fopen("/proc/thread-self/smaps", "re");
	CHECK(file != NULL);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%zx-%zx ", &start, &end) == 2)
			here = start <= (size_t)p && (size_t)p < end;
		else if (here && strncmp(line, field, n) == 0 && line[n] == ':')
			break;
	}
	fclose(file);
	CHECK(here);
	return line + n + 1;
}

/* The number behind a name at the begin of a line ("VmLck:   12 kB", "odf_share 3"), or -1. */
static inline long number_in(const char *path, const char *name)
{
	char line[256];
	long value = -1;
	size_t n = strlen(name);
	FILE *file = fopen(path, "re");
	CHECK(file != NULL);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, n) == 0 && (line[n] == ':' || line[n] == ' '))
			value = atol(line + n + 1);
	fclose(file);
	return value;
}

/* A number of /proc/self/status, such as VmLck, in kB. */
static inline long status_kb(const char *field)
{
	return number_in("/proc/self/status", field);
}

/* Writes a file, which may be executed. */
static inline void write_file(const char *path, const void *bytes, size_t len)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len && close(fd) == 0);
}

/* What core dumps contain of this process. */
static inline unsigned long coredump_filter(void)
{
	char text[64] = "";
	int fd = open("/proc/self/coredump_filter", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
	return strtoul(text, NULL, 16);
}

/* How many descriptors are open. */
static inline int descriptors(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir != NULL);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* What a thread does that is only to be there: it ends when a byte comes out of the pipe whose end it is given. */
static inline void *until_told(void *end)
{
	char byte;
	CHECK(read(*(int *)end, &byte, 1) == 1);
	return NULL;
}

/* Makes that thread, and has it end. */
static inline void make_other(pthread_t *other, int end[2])
{
	CHECK(pipe(end) == 0 && pthread_create(other, NULL, until_told, end) == 0);
}

static inline void end_other(pthread_t other, const int end[2])
{
	CHECK(write(end[1], "", 1) == 1 && pthread_join(other, NULL) == 0);
}

/* Exit status of a child, or 128 plus the signal that ended it. */
static inline int wait_for(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Goes where there is no /proc; false where that takes rights that nobody here has. */
static inline int leave_proc(void)
{
	char empty[] = "/tmp/flashfork-XXXXXX";
	CHECK(mkdtemp(empty) != NULL);
	int allowed = geteuid() == 0 || unshare(CLONE_NEWUSER) == 0;
	CHECK(chdir(empty) == 0 && rmdir(empty) == 0);
	CHECK(!allowed || chroot(".") == 0);
	return allowed;
}

/* The same by the hand of another process, so that the engine hears nothing of it. */
static inline int lose_proc(void)
{
	if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0)
		return 0;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0);
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(!leave_proc());
	return wait_for(pid) == 0;
}

/* Likewise a limit. */
static inline int lower_limit(int resource, rlim_t soft, rlim_t hard)
{
	struct rlimit limit = {soft, hard};
	pid_t parent = getpid(), pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(prlimit(parent, resource, &limit, NULL) != 0);
	return wait_for(pid) == 0;
}

/* A fork that has to be made. */
static inline pid_t forked(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	return pid;
}

/* Forks. True in the clone, which has to end; false in the parent, once the clone has ended well. */
static inline int in_clone(void)
{
	pid_t pid = forked();
	if (pid == 0)
		return 1;
	CHECK(wait_for(pid) == 0);
	return 0;
}

/* Before what a clone does, after which it ends well: IN_CLONE { CHECK(...); } */
#define IN_CLONE for (int is_clone = in_clone(); is_clone; _exit(0))

#define ORDINARY (4 * MB)

static inline int call_seal(void)
{
	if (!flashfork_preload_seal) {
		fprintf(stderr, "the shim is not loaded: LD_PRELOAD=libflashfork_preload.so %s\n", program_invocation_name);
		_exit(2);
	}
	return flashfork_preload_seal();
}

/* Threads that a busy machine doesn't let stop within a second are a reason to refuse; not sixty times in a row. */
static inline void at_last(int (*call)(void))
{
	for (int refused = 0; call() != 0; refused++) {
		CHECK(refused < 60);
		usleep(100 * 1000);
	}
}

/* Seals, and proves it on ordinary memory made for the purpose. */
static inline void seal(void)
{
	char *ordinary = memory(ORDINARY, 99);
	at_last(call_seal);
	CHECK(all_sealed(ordinary, ORDINARY));
	CHECK(intact(ordinary, ORDINARY, 99));
	IN_CLONE {
		CHECK(intact(ordinary, ORDINARY, 99));
		fill(ordinary, ORDINARY, 98);
	}
	CHECK(intact(ordinary, ORDINARY, 99));
}

/* Tries to seal a process that must not be: nothing happens to it, and a clone is a plain, correct one. */
static inline void refused(void)
{
	char *ordinary = memory(ORDINARY, 97);
	CHECK(call_seal() == -1);
	CHECK(sealed_bytes(ALL) == 0);
	CHECK(intact(ordinary, ORDINARY, 97));
	IN_CLONE
		CHECK(intact(ordinary, ORDINARY, 97));
	munmap(ordinary, ORDINARY);
}

static inline void unseal(void)
{
	at_last(flashfork_preload_unseal);
	CHECK(sealed_bytes(ALL) == 0);
}

#endif
