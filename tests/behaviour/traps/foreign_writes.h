/* Another process that writes into this one's memory all the time, by process_vm_writev(2) and by /proc/PID/mem in turn, and
   remembers each write that succeeded. */
#ifndef FOREIGN_WRITES_H
#define FOREIGN_WRITES_H

#include <stdatomic.h>

struct writer {
	_Atomic int wanted;        /* 1: write, 0: rest, -1: end */
	_Atomic int resting;       /* 1: nothing is under way */
	_Atomic uint64_t written;  /* writes that succeeded */
	_Atomic uint64_t refused;  /* writes that failed for a moment: EFAULT, EIO */
	uint64_t last[];           /* for each word, what it must hold; 0: what it held at first */
};

static inline void __attribute__((noreturn)) write_all_the_time(struct writer *w, pid_t pid, uint64_t *memory, size_t words)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	int mem = open(path, O_RDWR | O_CLOEXEC);
	CHECK(mem >= 0);
	uint64_t random = 88172645463325252u, value[512];
	for (uint64_t n = 1;; n++) {
		if (w->wanted != 1) {
			w->resting = 1;
			if (w->wanted < 0 || getppid() != pid)
				_exit(0);
			sched_yield();
			n--;
			continue;
		}
		w->resting = 0;
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		/* A word, or now and then a whole page. */
		size_t count = n % 64 ? 1 : 512, at = random % (words - count + 1);
		for (size_t i = 0; i < count; i++)
			value[i] = n << 16 | i;
		struct iovec from = {value, 8 * count}, to = {memory + at, 8 * count};
		ssize_t done = n & 1 ? process_vm_writev(pid, &from, 1, &to, 1, 0)
		                     : pwrite(mem, value, 8 * count, (off_t)(uintptr_t)(memory + at));
		if (done < 0) {
			CHECK(errno == EFAULT || errno == EIO);
			w->refused++;
			done = 0;
		}
		w->written += done > 0;
		/* A page may have been written in part. */
		CHECK(done % 8 == 0);
		for (size_t i = 0; i < (size_t)done / 8; i++)
			w->last[at + i] = value[i];
	}
}

/* Starts it: a clone, so before anything is sealed. It writes to `len` bytes that hold pattern `seed`. */
static inline struct writer *foreign_writer(char *memory, size_t len)
{
	size_t words = len / 8;
	struct writer *w = mmap(NULL, sizeof *w + 8 * words, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(w != MAP_FAILED);
	pid_t pid = getpid();
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	struct iovec from = {&words, 8}, to = {w->last, 8};
	IN_CLONE {
		if (process_vm_writev(pid, &from, 1, &to, 1, 0) != 8)
			SKIP("no process may write into another: %s", strerror(errno));
	}
	w->last[0] = 0;
	w->resting = 1;
	pid_t child = forked();
	if (child == 0)
		write_all_the_time(w, pid, (uint64_t *)memory, words);
	return w;
}

/* Lets it write, `more` times at least. */
static inline void let_write(struct writer *w, uint64_t more)
{
	uint64_t goal = w->written + more;
	w->wanted = 1;
	while (w->written < goal)
		sched_yield();
}

/* How many words don't hold what they must, with the writer at rest. */
static inline size_t lost_words(struct writer *w, const char *memory, size_t len, uint64_t seed)
{
	w->wanted = 0;
	/* It may have looked before it was told. */
	uint64_t before;
	do {
		before = w->written + w->refused;
		for (int i = 0; i < 3; i++)
			sched_yield();
	} while (!w->resting || before != w->written + w->refused);
	size_t lost = 0;
	for (size_t i = 0; i < len / 8; i++)
		lost += ((const uint64_t *)memory)[i] != (w->last[i] ? w->last[i] : pattern(i, seed));
	return lost;
}

#endif
