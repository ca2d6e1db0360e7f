/* The only program of a guest whose system calls are fuzzed: its init. A child of it makes the calls, and init itself
   runs when that has ended or waits: no tick takes the CPU from it. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

/* As fork_server.c has them; the kernel is told to leave that memory alone. */
#define INPUT (96 << 20)
#define ROOM 65536
#define PORT 0xe9

/* A call: its number, and a byte for each of six arguments. */
struct call {
	uint16_t number;
	uint8_t arguments[6];
};

static char scratch[32][256];

static void need(int right, const char *what)
{
	if (right)
		return;
	perror(what);
	exit(1);
}

/* Small numbers, places in memory, and single bits. */
static long argument(uint8_t byte)
{
	if (byte < 0xc0)
		return byte;
	return byte < 0xe0 ? (long)scratch[byte & 31] : 1L << ((byte & 31) * 2);
}

static void make(const struct call *calls, size_t bytes)
{
	for (size_t i = 0; i < sizeof scratch; i++)
		((char *)scratch)[i] = ((const char *)calls)[i];
	for (size_t i = 0; i < bytes / sizeof *calls; i++) {
		const uint8_t *a = calls[i].arguments;

		syscall(calls[i].number % 470, argument(a[0]), argument(a[1]), argument(a[2]), argument(a[3]), argument(a[4]),
		        argument(a[5]));
	}
}

/* Makes the calls of the seeds once in a process of their own: what of the kernel they execute QEMU has translated
   then, and no clone translates it again. (TriforceAFL's children hand their translations to their parent.) */
static void warm_up(void)
{
	static char seeds[ROOM];
	pid_t child = fork();

	need(child >= 0, "fork");
	if (child == 0) {
		int file = open("/seeds", O_RDONLY | O_CLOEXEC);
		ssize_t length = read(file, seeds, sizeof seeds);

		close(file);
		make((const struct call *)seeds, length > 0 ? length : 0);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static void drive(const uint32_t *input)
{
	static uint32_t copy[1 + ROOM / 4];

	outb('F', PORT);
	memcpy(copy, input, 4 + (*input <= ROOM ? *input : ROOM));
	make((const struct call *)(copy + 1), copy[0]);
	outb('D', PORT);
}

int main(void)
{
	const struct sched_param first = {.sched_priority = 1}, last = {0};
	const char *fill = getenv("fill");
	volatile int *begun = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	mkdir("/dev", 0755);
	mknod("/dev/mem", S_IFCHR | 0600, makedev(1, 1));
	int memory = open("/dev/mem", O_RDONLY);
	const uint32_t *input = mmap(NULL, 4 + ROOM + 4092, PROT_READ, MAP_SHARED, memory, INPUT);
	need(input != MAP_FAILED, "the input's memory");
	need(!ioperm(PORT, 1, 1), "ioperm");
	/* What a guest has that has been at work: every page another. */
	size_t megabytes = fill ? strtoul(fill, NULL, 10) : 0;
	if (megabytes) {
		uint64_t *data = mmap(NULL, megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		need(data != MAP_FAILED, "fill");
		for (size_t i = 0; i < megabytes << 17; i += 512)
			data[i] = i + 1;
	}
	close(memory);
	warm_up();
	pid_t driver = fork();
	need(driver >= 0, "fork");
	if (driver == 0) {
		need(!sched_setscheduler(0, SCHED_FIFO, &first), "SCHED_FIFO");
		*begun = 1;
		drive(input);
		return 0;
	}
	need(!sched_setscheduler(0, SCHED_IDLE, &last), "SCHED_IDLE");
	/* What the driver waits for may come of a thread of the kernel's. */
	while (!*begun)
		sched_yield();
	for (int i = 0; i < 8 && waitpid(driver, NULL, WNOHANG) == 0; i++)
		sched_yield();
	outb('D', PORT);
	for (;;)
		pause();
}
