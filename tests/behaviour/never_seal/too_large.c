/* Mappings over 256 GB on kernels without PAGEMAP_SCAN (before 6.7): finding their pages one by one would take seconds.
   ioctl_pagemap_scan(2). With it: traps/sparse_terabyte.c. */
#include "../bytes_read.h"

#define PAGEMAP_SCAN_EMPTY 0xc0606610

int main(void)
{
	uint64_t arg[12] = {sizeof arg};
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	if (ioctl(fd, PAGEMAP_SCAN_EMPTY, arg) == 0 || (errno != ENOTTY && errno != EINVAL))
		SKIP("this kernel has PAGEMAP_SCAN: size doesn't matter");
	char *p = map_alone(300 * 1024 * MB, RW, MAP_PRIVATE | MAP_NORESERVE);
	if (p == NULL)
		SKIP("300 GB of addresses are not to be had (vm.overcommit_memory, RLIMIT_AS)");
	fill(p, 4 * MB, 1);
	size_t read_before = bytes_read();
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0 && intact(p, 4 * MB, 1));
	/* Eight bytes for each page would be 600 MB. */
	CHECK(bytes_read() - read_before < 64 * MB);
}
