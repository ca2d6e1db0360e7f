/* Makes a QEMU as it is a fork server of AFL's, as the changes of TriforceAFL do: it is loaded before QEMU's
   libraries (LD_PRELOAD).

   The guest's driver writes a byte to port 0xe9 (isa-debugcon), which QEMU writes to its standard output in the
   thread of the only virtual CPU (TCG), with its lock held, so that the main loop waits. That thread forks. A child
   is that thread alone: nothing sets off timers, as in TriforceAFL, and the guest runs until its driver says that it
   is done. QEMU must not have guest memory left out of children, and no io_uring, which children would share.

   As a plugin of QEMU's (-plugin) it also counts the edges between the blocks of the guest's kernel, where AFL wants
   that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* AFL's descriptors. */
#define REQUESTS 198
#define ANSWERS 199
/* Where it is open, the nanoseconds of each fork go there. */
#define TIMES 197
/* Where the guest looks for its input: its length, and so much of it. */
#define INPUT (96 << 20)
#define ROOM 65536

static char *memory;
static size_t memory_size;
static int in_child;

/* Guest memory shall be in children; it is what is largest of all that shall not. */
int madvise(void *address, size_t length, int advice)
{
	static int (*real)(void *, size_t, int);

	if (!real)
		real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
	if (advice != MADV_DONTFORK)
		return real(address, length, advice);
	if (length > memory_size) {
		memory = address;
		memory_size = length;
	}
	return 0;
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
	(void)entries, (void)ring, (void)flags;
	return -ENOSYS;
}

static void give_input(void)
{
	uint32_t length = 0;
	ssize_t n;

	while (length < ROOM && (n = pread(0, memory + INPUT + 4 + length, ROOM - length, length)) > 0)
		length += n;
	memcpy(memory + INPUT, &length, 4);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* Answers AFL's requests until there are no more; returns in each child. Without AFL the guest just goes on. */
static void serve(void)
{
	uint32_t word = 0;
	int status;

	if (memory_size < INPUT + 4 + ROOM) {
		fprintf(stderr, "fork_server: the guest has no memory at %d MB\n", INPUT >> 20);
		_exit(1);
	}
	if (write(ANSWERS, &word, 4) != 4) {
		give_input();
		in_child = 1;
		return;
	}
	while (read(REQUESTS, &word, 4) == 4) {
		uint64_t took = now();
		pid_t child = fork();

		if (child == 0) {
			close(REQUESTS);
			close(ANSWERS);
			give_input();
			in_child = 1;
			return;
		}
		took = now() - took;
		if (child < 0 || write(ANSWERS, &child, 4) != 4)
			break;
		if (write(TIMES, &took, sizeof took) < 0 && errno != EBADF)
			break;
		if (waitpid(child, &status, 0) != child || write(ANSWERS, &status, 4) != 4)
			break;
	}
	_exit(0);
}

/* What a child's console says: a panic is a crash. */
static void console(char said)
{
	static const char panic[] = "Kernel panic";
	static size_t found;

	found = said == panic[found] ? found + 1 : said == panic[0];
	if (!panic[found])
		abort();
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
	static ssize_t (*real)(int, const struct iovec *, int);

	if (!real)
		real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	if (descriptor != 1 && !in_child)
		return real(descriptor, parts, count);
	ssize_t length = 0;
	for (int i = 0; i < count; i++)
		for (size_t j = 0; j < parts[i].iov_len; j++, length++) {
			char byte = ((char *)parts[i].iov_base)[j];

			if (descriptor != 1)
				console(byte);
			else if (byte == 'F' && !in_child)
				serve();
			else if (byte == 'D')
				_exit(0);
		}
	return length;
}

/* QEMU's qemu-plugin.h, as far as it is needed, which Debian has in no package. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

static uint8_t *edges;

static void executed(unsigned cpu, void *block)
{
	static uint16_t last;
	uint16_t here = (uintptr_t)block;

	(void)cpu;
	if (in_child)
		edges[here ^ last]++;
	last = here >> 1;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	uint64_t address = qemu_plugin_tb_vaddr(block);

	(void)id;
	if (address >> 63)
		qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)(address * 0x9e3779b97f4a7c15 >> 48));
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **words)
{
	const char *shared = getenv("__AFL_SHM_ID");

	(void)info, (void)count, (void)words;
	if (!shared)
		return 0;
	edges = shmat(atoi(shared), NULL, 0);
	if (edges == (void *)-1)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
