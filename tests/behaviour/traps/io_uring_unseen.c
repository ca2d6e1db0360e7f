/* io_urings that nothing shows: in memory of the program's own and without a descriptor (IORING_SETUP_NO_MMAP,
   IORING_SETUP_REGISTERED_FD_ONLY), or registered and closed. The kernel completes into them, and into buffers, all the same: the
   process is not sealed. Its clones, which don't have the ring, are. io_uring_setup(2), io_uring_register(2). */
#include <linux/io_uring.h>

#define NO_MMAP (1u << 14)
#define REGISTERED_FD_ONLY (1u << 15)
#define REGISTER_RING_FDS 20

struct ring_update {
	uint32_t offset, reserved;
	uint64_t data;
};

int main(void)
{
	struct io_uring_params params = {.flags = NO_MMAP | REGISTERED_FD_ONLY};
	char *ring = map_alone(2 * MB, RW, MAP_PRIVATE);
	CHECK(ring != NULL);
	memset(ring, 0, 2 * MB);
	/* Their last words, `user_addr` in younger headers. */
	params.sq_off.resv2 = (uintptr_t)ring;
	params.cq_off.resv2 = (uintptr_t)ring + PAGE;
	if (syscall(SYS_io_uring_setup, 4, &params) < 0) {
		/* Before Linux 6.5. */
		memset(&params, 0, sizeof params);
		int fd = syscall(SYS_io_uring_setup, 4, &params);
		struct ring_update update = {.offset = -1u, .data = fd};
		if (fd < 0 || syscall(SYS_io_uring_register, fd, REGISTER_RING_FDS, &update, 1) != 1)
			SKIP("this kernel has no io_uring without a descriptor, or doesn't let us use it");
		close(fd);
	}
	refused();
	IN_CLONE
		seal();
}
