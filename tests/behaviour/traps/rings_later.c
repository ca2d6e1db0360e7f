/* Asynchronous I/O and io_uring that are set up after a seal: the kernel writes later, to the pages that are there when a call is
   submitted, and a ring discards memory by itself. All memory is anonymous before there is one. io_setup(2), io_uring_setup(2). */
#include <linux/aio_abi.h>
#include <linux/io_uring.h>

static char *p;

static void all_is_anonymous(void)
{
	CHECK(sealed_bytes(p, 16 * MB) == 0 && intact(p, 16 * MB, 1));
	CHECK(madvise(p + MB, PAGE, MADV_DONTNEED) == 0 && p[MB] == 0);
}

int main(void)
{
	p = memory(16 * MB, 1);
	seal();
	CHECK(sealed_bytes(p, 16 * MB) > 0);
	pid_t pid = fork();
	if (pid == 0) {
		aio_context_t context = 0;
		if (syscall(SYS_io_setup, 4, &context) != 0)
			_exit(errno == ENOSYS ? 0 : 1);
		all_is_anonymous();
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	struct io_uring_params params = {0};
	if (syscall(SYS_io_uring_setup, 4, &params) < 0)
		SKIP("no io_uring here: %s", strerror(errno));
	all_is_anonymous();
	CHECK(call_seal() != 0);
}
