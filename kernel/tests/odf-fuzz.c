// SPDX-License-Identifier: GPL-2.0-only
/*
 * A fuzzer, for guests only: processes that fork each other, mostly on-demand, and make random system calls of memory
 * and processes with right, wrong and hostile arguments; some have a second thread that does the same.
 *
 *   odf-fuzz SECONDS SEED
 *
 * The arena's first tables are kept: calls that change what memory holds get addresses behind them. Each process
 * knows what it must find there, and looks. It may die of what it does; and must when killed, every ten seconds.
 */
#include "odf_util.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#define KEPT	(4 * TABLE)
#define SIZE	(10 * TABLE)
#define PAGES	(KEPT / PAGE)
#define RW	(PROT_READ | PROT_WRITE)
#define ONE_OF(list) ((list)[rnd(sizeof(list) / sizeof(*(list)))])

/* Low, as is all that the program needs: hostile lengths reach up. */
static char *const arena = (char *)0x100000000;
static struct { _Atomic long calls, forks, looks, bad; pid_t pid[16]; } *const all = (void *)0x10000000;
static uint64_t kept[PAGES];
static int fds[4], depth, children;
static __thread uint64_t rng;
static __thread bool second;

static uint64_t rnd(uint64_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (rng >> 11) % below;
}

/* A letter is a kind of argument; = says that the result is a file. Half of all calls are of the first 12. */
static const struct call { int nr; const char *args; } calls[] = {
	{ SYS_mmap, "flpmFl" }, { SYS_munmap, "fl" }, { SYS_mremap, "fllef" }, { SYS_mprotect, "klp" },
	{ SYS_madvise, "alA" }, { SYS_madvise, "flB" }, { SYS_mlock2, "alb" }, { SYS_munlock, "al" }, { SYS_pread64, "FflO" },
	{ SYS_process_vm_readv, "Pv2w20" }, { SYS_mbind, "aleN3e" }, { SYS_move_pages, "PeVNfe" },
	{ SYS_process_vm_writev, "Pw2v20" }, { SYS_pwrite64, "Falf" }, { SYS_mlockall, "b" }, { 462 /* mseal */, "fl0" },
	{ SYS_mincore, "alf" }, { SYS_set_mempolicy, "eN3" }, { SYS_migrate_pages, "P3NN" }, { SYS_set_tid_address, "f" },
	{ SYS_madvise, "f1H" }, { SYS_prctl, "Qb000" }, { SYS_userfaultfd, "=b" }, { SYS_ioctl, "FUs" }, { SYS_ioctl, "FUs" },
	{ SYS_pidfd_open, "=P0" }, { SYS_process_madvise, "Fw2A0" }, { SYS_pidfd_send_signal, "F900" },
	{ SYS_process_mrelease, "F0" }, { SYS_openat, "=0Sb" }, { SYS_openat, "=0Sb" }, { SYS_write, "Fg1" },
	{ SYS_swapoff, "W" }, { SYS_swapon, "W0" },
};

static uint64_t arg(char kind)
{
	static const uint64_t bad[] = { -1UL, -PAGE, 1UL << 47, (1UL << 47) - PAGE, 1UL << 46, 0xffff888000000000 };
	static const char keeping[] = { 0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 25 };
	static const int options[] = { PR_SET_ODF, PR_GET_ODF, 67 /* PR_SET_MEMORY_MERGE */, PR_SET_THP_DISABLE };
	/* REGISTER, UNREGISTER, WAKE, COPY, ZEROPAGE, MOVE, WRITEPROTECT, CONTINUE, POISON */
	static const unsigned int userfault[] = { 0xc020aa00, 0x8010aa01, 0x8010aa02, 0xc028aa03, 0xc020aa04, 0xc028aa05,
						  0xc018aa06, 0xc020aa07, 0xc020aa08 };
	static const char *const files[] = { "smaps", "pagemap", "clear_refs", "numa_maps", "mem", "../sys/vm/drop_caches",
					     "../sys/vm/compact_memory", "../../sys/kernel/mm/ksm/run" };
	static __thread struct iovec iov[2][2];
	static __thread uint64_t words[8];
	static __thread int nodes[16];
	static __thread char path[64];
	uint64_t from = kind == 'f' || (kind == 'k' && second) ? KEPT : 0, unit = rnd(2) ? TABLE : PAGE;
	int w = kind == 'w';

	switch (kind) {
	case 'f': case 'k': case 'a':	/* address of what is not kept; of what this thread may protect; of any */
		if (!rnd(16))
			return ONE_OF(bad);
		return (uintptr_t)arena + from + rnd((SIZE - from) / unit) * unit + (rnd(16) ? 0 : rnd(PAGE));
	case 'l':
		return rnd(16) ? rnd(unit == PAGE ? 64 : 5) * unit + (rnd(16) ? 0 : rnd(PAGE)) : ONE_OF(bad);
	case 'v': case 'w':	/* iovec of 'f'; of 'a' */
		for (int i = 0; i < 2; i++)
			iov[w][i] = (struct iovec){ (void *)arg(w ? 'a' : 'f'), arg('l') };
		return (uintptr_t)iov[w];
	case 's':	/* for userfault[]: a range and a mode, or one more address before */
		for (int i = 0, more = rnd(2); i < 4; i++)
			words[i] = i <= more ? arg('f') : i == more + 1 ? arg('l') : rnd(8);
		return (uintptr_t)words;
	case 'V': for (int i = 0; i < 8; i++) words[i] = arg('a'); return (uintptr_t)words;
	case 'N': for (int i = 0; i < 16; i++) nodes[i] = rnd(3); return (uintptr_t)&nodes[rnd(8)];
	case 'S': snprintf(path, sizeof(path), "/proc/%d/%s", (int)arg('P'), ONE_OF(files)); return (uintptr_t)path;
	case 'W': return (uintptr_t)"/dev/vda";
	case 'g': return (uintptr_t)&"012345"[rnd(6)];
	case 'P': return rnd(4) ? ONE_OF(all->pid) : getpid();
	case 'F': return ONE_OF(fds);
	case 'O': return arg('a') >> rnd(2) * 9;
	case 'p': return rnd(3) ? RW : rnd(16);
	case 'm': return MAP_PRIVATE | MAP_FIXED | (rnd(3) ? MAP_ANONYMOUS : rnd(1 << 21));
	case 'A': return ONE_OF(keeping);
	case 'B': return rnd(27);
	case 'H': return rnd(8) ? 0 : MADV_HWPOISON + rnd(2);
	case 'Q': return ONE_OF(options);
	case 'U': return ONE_OF(userfault);
	case 'b': return rnd(3);
	case 'e': return rnd(8);
	default: return kind - '0';
	}
}

static void call(void)
{
	const struct call *call = calls + rnd(rnd(2) ? 12 : sizeof(calls) / sizeof(*calls));
	uint64_t api[3] = { 0xaa, rnd(2) ? 1 << 7 /* UFFD_FEATURE_SIGBUS */ : rnd(1 << 16) }, v[6] = {};
	int opens = *call->args == '=', result, *fd = &ONE_OF(fds);

	for (int i = 0; call->args[i + opens]; i++)
		v[i] = arg(call->args[i + opens]);
	result = syscall(call->nr, v[0], v[1], v[2], v[3], v[4], v[5]);
	if (opens && result > 0) {
		close(*fd);
		*fd = result;
		ioctl(result, 0xc018aa3f /* UFFDIO_API */, api);
	}
	all->calls++;
}

static void *thread(void *arg)
{
	rng = (uintptr_t)arg;
	for (second = true; second;)
		call();
	return NULL;
}

/* Writes a part of what is kept, or looks at it. */
static void touch(bool look)
{
	unsigned long i = rnd(PAGES), n = 1 + rnd(rnd(8) ? 32 : PAGES);

	for (; n-- && i < PAGES; i++) {
		volatile uint64_t *p = (void *)(arena + i * PAGE);

		if (!look) {
			*p = kept[i] = rnd(4) ? rnd(-1UL) : rnd(3);
		} else if (*p != kept[i]) {
			all->bad++;
			dprintf(1, "# page %lu holds %lx, not %lx\n", i, *p, kept[i]);
			syscall(SYS_exit, 1);
		}
	}
	all->looks += look;
}

static void trace(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) || ptrace(PTRACE_INTERRUPT, pid, 0, 0))
		return;
	waitpid(pid, NULL, __WALL);
	for (int i = 0; i < 8; i++)
		ptrace(rnd(2) ? PTRACE_PEEKDATA : PTRACE_POKEDATA, pid, arg('f'), i);
	ptrace(PTRACE_DETACH, pid, 0, 0);
}

/* As at the beginning: one VMA, so that its tables can be shared. */
static void restore(void)
{
	munlockall();
	prctl(67, 0, 0, 0, 0);
	mmap(arena + KEPT, SIZE - KEPT, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	mprotect(arena, SIZE, RW);
	syscall(SYS_mbind, arena, SIZE, 0, NULL, 0, 0);
	madvise(arena, SIZE, MADV_NOHUGEPAGE);
	madvise(arena, SIZE, MADV_UNMERGEABLE);
}

static void spawn(void);

static void child(void)
{
	pthread_t id;

	rng = rng * 0x9e3779b97f4a7c15ULL | 1;
	depth++;
	children = 0;
	alarm(1 + rnd(5));	/* Some would wait for ever. */
	ONE_OF(all->pid) = getpid();
	switch (rnd(16)) {
	case 0: _exit(execl("/proc/self/exe", "odf-fuzz", NULL));
	case 1:
		mprotect(arena, KEPT, RW);
		prctl(PR_SET_SECCOMP, 1, 0, 0, 0);
		for (int i = 0; i < 32; i++)
			touch(i & 1);
		syscall(SYS_exit, 0);
		break;
	case 2 ... 5: pthread_create(&id, NULL, thread, (void *)(rnd(-1UL) | 1));
	}
	for (;;) {
		switch (rnd(32)) {
		case 0 ... 3:
			mprotect(arena, KEPT, RW);
			touch(rnd(2));
			break;
		case 4: restore(); break;
		case 5: case 6: spawn(); break;
		case 7: trace(arg('P')); break;
		default: call();
		}
	}
}

static void spawn(void)
{
	struct odf_clone_args args = { CLONE_ODF, arg('f'), arg('f'), arg('f'), SIGCHLD, 0, 0, 0 };
	pid_t pid;

	if (depth > 3)
		return;
	if (children == 2)
		children = waitpid(-1, NULL, __WALL) > 0;
	if (rnd(2))
		restore();
	switch (rnd(8)) {
	case 0:
		pid = vfork();
		if (pid)
			return;
		call();
		_exit(0);
	case 1:
		prctl(PR_SET_ODF, rnd(2), 0, 0, 0);
		pid = fork();
		break;
	default:
		for (int n = rnd(4); n--;)
			args.flags |= 1UL << (8 + rnd(26));
		args.flags &= ~(uint64_t)CLONE_NEWPID;	/* There, pids would be of others. */
		if (args.flags & CLONE_PARENT)
			args.exit_signal = 0;
		pid = syscall(SYS_clone3, &args, sizeof(args));
	}
	if (!pid)
		child();
	children += pid > 0;
	all->forks += pid > 0;
}

int main(int argc, char **argv)
{
	struct rlimit limit = { 6 * SIZE, 6 * SIZE };
	long shared = odf_vmstat("odf_share"), copied = odf_vmstat("odf_copy"), killed = 0;
	time_t end;

	if (argc < 3)
		return 0;	/* What a child executes, and who has forgotten SECONDS SEED. */
	end = time(NULL) + atol(argv[1]);
	rng = atol(argv[2]) | 1UL << 32;
	dprintf(1, "# seed %s\n", argv[2]);
	for (int i = 0; i < 4; i++)
		fds[i] = memfd_create("odf-fuzz", 0);
	if (mmap(all, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != all ||
	    mmap(arena, KEPT, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != arena || !odf_write_sysctl(1) ||
	    ftruncate(fds[0], SIZE) || setrlimit(RLIMIT_AS, &limit) || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) {
		perror("odf-fuzz can't be set up; is this a guest of the lab?");
		return 3;
	}
	restore();
	for (unsigned long i = 0; i < PAGES; i++)
		*(uint64_t *)(arena + i * PAGE) = kept[i] = i;

	while (time(NULL) < end && !all->bad) {
		pid_t worker[3] = {}, pid = 0, group = fork();

		memset(all->pid, 0, sizeof(all->pid));
		if (group < 0) {
			perror("fork");
			return 3;
		}
		if (!group) {
			setpgid(0, 0);
			sleep(10);
			kill(0, SIGKILL);
		}
		setpgid(group, group);
		do {
			for (int i = 0; i < 3; i++) {
				if (worker[i] != pid)
					continue;
				rnd(2);
				worker[i] = odf_fork();
				if (!worker[i]) {
					/* Later than the group's end nobody would kill it. */
					if (setpgid(0, group))
						_exit(0);
					child();
				}
			}
			pid = waitpid(-1, NULL, __WALL);
		} while (pid != group);
		/* Those forked since, too. */
		kill(-group, SIGKILL);
		while (waitpid(-1, NULL, __WALL) > 0)
			killed++;
	}
	shared = odf_vmstat("odf_share") - shared;
	copied = odf_vmstat("odf_copy") - copied;
	all->bad += !all->looks || !shared || !copied;
	printf("# %ld calls, %ld forks, %ld looks, %ld killed at the end of 10 s\n# tables shared %ld, copied %ld\n%sok 1 fuzz\n",
	       all->calls, all->forks, all->looks, killed, shared, copied, all->bad ? "not " : "");
	return !!all->bad;
}
