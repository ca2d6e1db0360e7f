/* Mappings over 256 GB on kernels without PAGEMAP_SCAN (before 6.7): finding their pages one by one would take seconds.
   ioctl_pagemap_scan(2). With it: traps/sparse_terabyte.c. */
#include "../behaviour.h"
#include <sys/ioctl.h>
#include <time.h>

#define PAGEMAP_SCAN_EMPTY 0xc0606610

int main(void)
{
    struct timespec a, b;
    uint64_t arg[12] = {sizeof arg};
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    if (ioctl(fd, PAGEMAP_SCAN_EMPTY, arg) == 0 || (errno != ENOTTY && errno != EINVAL))
        SKIP("this kernel has PAGEMAP_SCAN: size doesn't matter");
    char *p = map_alone(300 * 1024 * MB, RW, MAP_PRIVATE | MAP_NORESERVE);
    if (p == NULL)
        SKIP("300 GB of addresses are not to be had (vm.overcommit_memory, RLIMIT_AS)");
    fill(p, 4 * MB, 1);
    clock_gettime(CLOCK_MONOTONIC, &a);
    seal();
    clock_gettime(CLOCK_MONOTONIC, &b);
    CHECK(sealed_bytes(p, 4 * MB) == 0 && intact(p, 4 * MB, 1));
    CHECK(b.tv_sec - a.tv_sec < 60);
    return 0;
}
