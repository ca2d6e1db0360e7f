/* flashfork_snapshot returns again, with the number given to flashfork_restore and everything in memory as it was: variables, heap,
   stdio's buffers, locals, the file's offset. Misuse is told. */
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS 500

static int data = 3;
static int bss[5000];
static __thread int local = 4;
static int *turns; /* shared memory: what stays */

static void *nothing(void *arg)
{
	return arg;
}

static void misuse(void)
{
	struct flashfork_snapshot_options wrong = {0};
	int closed = 900;

	CHECK(flashfork_restore(1) == -1 && errno == ENOENT && strstr(flashfork_last_error(), "no snapshot"));
	CHECK(flashfork_restore(0) == -1 && errno == EINVAL);
	CHECK(flashfork_restore(-4) == -1 && errno == EINVAL);
	wrong.reserved[2] = 1;
	CHECK(flashfork_snapshot(&wrong) == -1 && errno == EINVAL);
	wrong.reserved[2] = 0;
	wrong.keep_count = 1;
	CHECK(flashfork_snapshot(&wrong) == -1 && errno == EINVAL);
	wrong.keep_count = 0;
	wrong.descriptors = &closed;
	wrong.descriptor_count = 1;
	CHECK(flashfork_snapshot(&wrong) == -1 && errno == EBADF && strstr(flashfork_last_error(), "900"));
	wrong.descriptor_count = SIZE_MAX;
	CHECK(flashfork_snapshot(&wrong) == -1 && errno == ENOSPC);
	CHECK(flashfork_snapshot_discard() == 0);
}

int main(void)
{
	struct flashfork_snapshot_options options = {0};
	unsigned char *warm_memory = warm(), *block, *kept = NULL;
	struct flashfork_range keep;
	volatile int on_stack = 5;
	FILE *file = tmpfile();
	pthread_t thread;
	int turn, fd, status;
	pid_t pid;

	misuse();
	turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(turns != MAP_FAILED && file);
	fd = fileno(file);
	CHECK(fputs("begin ", file) >= 0); /* not yet in the file */
	kept = malloc(64);
	memset(kept, 0, 64);
	keep.start = kept + 8;
	keep.end = kept + 16;
	options.descriptors = &fd;
	options.descriptor_count = 1;
	options.keep = &keep;
	options.keep_count = 1;

	turn = flashfork_snapshot(&options);
	CHECK(turn >= 0 && turn == *turns);
	CHECK(data == 3 && local == 4 && on_stack == 5 && bss[4999] == 0);
	CHECK(kept[8] == (unsigned char)turn && kept[0] == 0);
	for (int i = 0; i < 16 << 20; i += 4096)
		CHECK(warm_memory[i] == 7);
	data = local = on_stack = bss[4999] = -1;
	memset(kept, turn + 1, 64);
	memset(warm_memory + (turn % 16 << 20), turn, 1 << 20);
	if (turn % 3 == 0)
		free(warm_memory);
	block = malloc((size_t)turn * 3000 + 1);
	CHECK(block);
	memset(block, turn, (size_t)turn * 3000 + 1);
	CHECK(fprintf(file, "turn %04d\n", turn) == 10 && fflush(file) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 16);
	*turns = turn + 1;
	if (turn < TURNS) {
		flashfork_restore(turn + 1);
		CHECK(!"restored");
	}

	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(flashfork_restore(1) == -1 && errno == EPERM && strstr(flashfork_last_error(), "clone"));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(flashfork_snapshot_discard() == 0);
	CHECK(flashfork_restore(1) == -1 && errno == ENOENT);
	CHECK(data == -1);
}
