/* A process with an io_uring: the kernel would complete into the pages that were there before the seal, and what arrived
   would be gone (measured on 6.1, 6.12 and 6.18, with plain buffers too). io_uring_setup(2). */
#include <linux/io_uring.h>

int main(void)
{
	struct io_uring_params params = {0};
	int fd = syscall(SYS_io_uring_setup, 4, &params);
	if (fd < 0)
		SKIP("this kernel has no io_uring, or doesn't let us use it");
	refused();
	close(fd);
	seal();
}
