/* Memory that was sealed before there were other threads, in a process that doesn't have threads stopped for seals: what works on
   anonymous memory only works there too, also where one of them is just starting a program; and nobody seals by that leave.
   madvise(2), mremap(2), userfaultfd(2), vfork(2). */
#include <linux/userfaultfd.h>
#include <spawn.h>

static volatile int over;

static void *start_programs(void *unused)
{
	char *args[] = {"true", NULL};
	while (!over) {
		pid_t pid;
		CHECK(posix_spawnp(&pid, "true", NULL, NULL, args, args + 1) == 0 && wait_for(pid) == 0);
	}
	return unused;
}

static void *seal_without_leave(void *unused)
{
	while (!over)
		CHECK(call_seal() == -1);
	return unused;
}

static void beside(void *(*other)(void *))
{
	pthread_t thread;
	char *p = memory(16 * MB, 4);
	seal();
	over = 0;
	START(&thread, other, NULL);
	for (size_t i = 0; i < 8; i++)
		CHECK(madvise(p + i * 2 * MB, PAGE, MADV_WIPEONFORK) == 0);
	over = 1;
	CHECK(pthread_join(thread, NULL) == 0 && intact(p, 16 * MB, 4));
}

int main(void)
{
	int end[2];
	pthread_t other;
	beside(start_programs);
	beside(seal_without_leave);
	char *wiped = memory(4 * MB, 1), *left = memory(4 * MB, 2), *rest = memory(4 * MB, 3);
	seal();
	make_other(&other, end);
	CHECK(call_seal() == -1);

	CHECK(madvise(wiped, MB, MADV_WIPEONFORK) == 0 && intact(wiped, 4 * MB, 1));
	char *moved = mremap(left, 4 * MB, 4 * MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(moved != MAP_FAILED && intact(moved, 4 * MB, 2) && zeros(left, 4 * MB));
	IN_CLONE
		CHECK(zeros(wiped, MB) && intact(moved, 4 * MB, 2) && zeros(left, 4 * MB));
	CHECK(all_sealed(rest, 4 * MB));
	if (syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY) >= 0)
		CHECK(sealed_bytes(ALL) == 0);
	CHECK(intact(rest, 4 * MB, 3));
	/* That was for these calls alone. */
	CHECK(call_seal() == -1);
	end_other(other, end);
}
