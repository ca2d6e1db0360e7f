/* A thread that sets AIO up while a seal runs: its reads would go into pages that have been replaced. The ring is found in each pause, and the seal
   ends there; no read is lost. io_setup(2).
   env: FLASHFORK_THREADS=stop */
#include <linux/aio_abi.h>

#define DEPTH 16
#define LENGTH (256ul * 1024)
#define BLOCKS 64

static char *target;
static volatile int over;
static int file;

static void *reads(void *none)
{
	aio_context_t ring = 0;
	while (!over && sealed_bytes(target, BLOCKS * 2 * MB) == 0)
		usleep(100);
	CHECK(syscall(SYS_io_setup, DEPTH, &ring) == 0);
	for (unsigned turn = 0; turn < 4; turn++) {
		struct iocb requests[DEPTH] = {0}, *all[DEPTH];
		struct io_event events[DEPTH];
		for (unsigned i = 0; i < DEPTH; i++) {
			char *at = target + ((turn * DEPTH + i) % BLOCKS) * 2 * MB + MB;
			memset(at, 1, LENGTH);
			requests[i] = (struct iocb){.aio_fildes = (uint32_t)file, .aio_lio_opcode = IOCB_CMD_PREAD,
										.aio_buf = (uintptr_t)at, .aio_nbytes = LENGTH};
			all[i] = &requests[i];
		}
		long sent = 0, done = 0;
		while (sent < DEPTH) {
			long n = syscall(SYS_io_submit, ring, DEPTH - sent, all + sent);
			CHECK(n > 0 || errno == EAGAIN || errno == EINTR);
			sent += n > 0 ? n : 0;
		}
		while (done < DEPTH) {
			long n = syscall(SYS_io_getevents, ring, 1, DEPTH - done, events, NULL);
			CHECK(n > 0 || errno == EINTR);
			for (long i = 0; i < n; i++)
				CHECK(events[i].res == (long)LENGTH);
			done += n > 0 ? n : 0;
		}
		for (unsigned i = 0; i < DEPTH; i++)
			for (size_t at = 0; at < LENGTH; at++)
				CHECK(((char *)(uintptr_t)requests[i].aio_buf)[at] == 7);
	}
	CHECK(syscall(SYS_io_destroy, ring) == 0);
	return none;
}

int main(void)
{
	pthread_t thread;
	char *sevens = memory(LENGTH, 1);
	memset(sevens, 7, LENGTH);
	file = open("sevens", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(file >= 0 && write(file, sevens, LENGTH) == (ssize_t)LENGTH && fsync(file) == 0);
	target = memory(BLOCKS * 2 * MB, 2);
	/* Reads that wait for the disk are on their way while the seal goes on; without direct I/O none is. */
	int direct = open("sevens", O_RDONLY | O_DIRECT | O_CLOEXEC);
	file = direct >= 0 ? direct : file;
	START(&thread, reads, NULL);
	call_seal();
	over = 1;
	JOIN(thread);
	return unlink("sevens");
}
