/* A terabyte of addresses with little in it, as sanitizers and language runtimes reserve: the seal takes the dense part and doesn't
   walk the rest (a naive one took 14 s). ioctl_pagemap_scan(2). */
#include "../bytes_read.h"

int main(void)
{
	size_t len = 1024 * 1024 * MB;
	char *p = map_alone(len, RW, MAP_PRIVATE | MAP_NORESERVE);
	if (p == NULL)
		SKIP("a terabyte of addresses is not to be had (vm.overcommit_memory, RLIMIT_AS)");
	CHECK(madvise(p, len, MADV_NOHUGEPAGE) == 0);
	char *dense = p + len / 2;
	fill(dense, 16 * MB, 1);
	for (size_t at = 0; at < len; at += len / 1000 & ~(PAGE - 1))
		if (at < len / 2 || at >= len / 2 + 16 * MB)
			p[at] = 1;
	size_t read_before = bytes_read();
	seal();
	if (sealed_bytes(dense, 16 * MB) == 0)
		SKIP("before PAGEMAP_SCAN (Linux 6.7) so large a mapping is left alone");
	CHECK(sealed_bytes(p, len) == 16 * MB);
	/* Eight bytes for each page would be 2 GB. */
	CHECK(bytes_read() - read_before < 64 * MB);
	IN_CLONE
		CHECK(intact(dense, 16 * MB, 1));
}
