/* A region goes back by dropping and by copying, whichever has turned out cheaper, in the midst of what else a process does. The
   argument says what: the kernel must see that pages are copied before it, and the state must be right after it. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 8 << 20 };

static unsigned char *p;
static struct flashfork_region *region;

/* Whether the engine has a userfaultfd open, as it has while pages are copied back. */
static int copies(void)
{
	DIR *all = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[64], path[300];
	int found = 0;

	CHECK(all);
	while ((entry = readdir(all))) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		ssize_t n = readlink(path, target, sizeof target - 1);
		target[n > 0 ? n : 0] = 0;
		found += strcmp(target, "anon_inode:[userfaultfd]") == 0;
	}
	closedir(all);
	return found;
}

/* Whether it can: Linux 6.7, and a userfaultfd is allowed. */
static int can_copy(void)
{
	struct utsname name;
	int major, minor;
	int fd = (int)syscall(SYS_userfaultfd, 1);

	if (fd >= 0)
		close(fd);
	uname(&name);
	CHECK(sscanf(name.release, "%d.%d", &major, &minor) == 2);
	return fd >= 0 && (major > 6 || (major == 6 && minor >= 7));
}

static int intact(void)
{
	for (size_t i = 0; i < SIZE; i += PAGE)
		if (p[i] != (unsigned char)(i >> 12))
			return 0;
	return 1;
}

/* Pages that are written every time, and a page that is not. */
static void turns(int count)
{
	for (int turn = 0; turn < count; turn++) {
		for (size_t i = 0; i < SIZE; i += 37 * PAGE)
			p[i] ^= 0xff;
		p[(size_t)(turn * 11) % (SIZE / PAGE) * PAGE] ^= 0x55;
		CHECK(flashfork_region_rollback(region) == 0);
		CHECK(intact());
	}
}

static void wreck(void)
{
	for (size_t i = 0; i < SIZE; i += 3 * PAGE)
		p[i] ^= 0xff;
}

static void in_child(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		wreck();
		turns(200);
		_exit(0);
	}
	turns(200);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void *thread(void *arg)
{
	(void)arg;
	wreck();
	return NULL;
}

/* Everything but what a program needs that only goes back and ends. */
static void in_sandbox(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		turns(100);
		wreck();
		CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
		turns(100);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Becomes this program anew, under a filter that ends it for a userfaultfd. */
static void become_filtered(char *self)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	execl(self, self, "filtered", NULL);
	CHECK(!"executed");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct flashfork_seal_report report;
	int copied;

	if (strcmp(what, "filter") == 0)
		become_filtered(argv[0]);
	copied = strcmp(what, "filtered") != 0 && can_copy();
	region = flashfork_region_create(SIZE, FLASHFORK_PAGES_AUTO);
	CHECK(region);
	p = flashfork_region_address(region);
	for (size_t i = 0; i < SIZE; i += PAGE)
		p[i] = (unsigned char)(i >> 12);
	CHECK(flashfork_region_rollback_range(region, 0, PAGE) == -1 && errno == ENOENT);
	CHECK(flashfork_region_seal(region) == 0);
	CHECK(flashfork_region_rollback_range(region, 1, PAGE) == -1 && errno == EINVAL);
	CHECK(flashfork_region_rollback_range(region, SIZE, PAGE) == -1 && errno == EINVAL);
	CHECK(flashfork_region_rollback_range(region, PAGE, (size_t)-PAGE) == -1 && errno == EINVAL);
	/* Not before it has seen what dropping costs. */
	turns(20);
	CHECK(!copies());
	for (int i = 0; i < 40 && !copies(); i++)
		turns(1);
	CHECK(copies() == copied);
	if (strcmp(what, "range") == 0) {
		for (int i = 0; i < 100; i++) {
			wreck();
			CHECK(flashfork_region_rollback_range(region, 3 * PAGE, SIZE - 3 * PAGE) == 0);
			CHECK(p[0] == 0xff && flashfork_region_rollback_range(region, 0, PAGE) == 0 && intact());
		}
	} else if (strcmp(what, "fork") == 0) {
		in_child();
	} else if (strcmp(what, "flashfork_fork") == 0) {
		int status;
		pid_t pid = flashfork_fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK(copies() == 0);
			turns(200);
			_exit(0);
		}
		turns(1);
		CHECK(copies() == 0);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	} else if (strcmp(what, "seal") == 0) {
		wreck();
		CHECK(flashfork_seal(NULL, &report) == 0);
		CHECK(!intact());
		turns(200);
	} else if (strcmp(what, "snapshot") == 0) {
		int turn = flashfork_snapshot(NULL);

		CHECK(turn >= 0);
		CHECK(intact());
		turns(100);
		wreck();
		if (turn < 5)
			flashfork_restore(turn + 1);
		CHECK(turn == 5 && copies() <= 1);
		turns(100);
	} else if (strcmp(what, "thread") == 0) {
		pthread_t other;

		CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
		CHECK(pthread_join(other, NULL) == 0);
		turns(100);
	} else if (strcmp(what, "userfaultfd") == 0) {
		/* One of the program's own finds nothing registered. */
		int fd = (int)syscall(SYS_userfaultfd, 1);

		if (fd >= 0) {
			CHECK(copies() == 1);
			turns(100);
			CHECK(copies() == 1);
		}
	} else if (strcmp(what, "closed") == 0) {
		CHECK(close_range(3, ~0u, 0) == 0);
		turns(200);
	} else if (strcmp(what, "sandbox") == 0) {
		in_sandbox();
	} else if (strcmp(what, "filtered") == 0) {
		turns(600);
		CHECK(copies() == 0);
	} else {
		CHECK(!"known");
	}
	turns(10);
	flashfork_region_free(region);
}
