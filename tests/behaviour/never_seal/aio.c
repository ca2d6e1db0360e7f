/* A process with an asynchronous I/O context: the kernel would complete into the pages before the seal. io_setup(2). */
#include <linux/aio_abi.h>

int main(void)
{
	aio_context_t context = 0;
	if (syscall(SYS_io_setup, 4, &context) != 0)
		SKIP("this kernel has no asynchronous I/O");
	refused();
	CHECK(syscall(SYS_io_destroy, context) == 0);
	seal();
}
