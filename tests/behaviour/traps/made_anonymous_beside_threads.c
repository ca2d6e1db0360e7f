/* Memory that was sealed before there were other threads, in a process that doesn't have threads stopped for seals: what works on
   anonymous memory only works there too. madvise(2), mremap(2), userfaultfd(2). */
#include "../behaviour.h"
#include <linux/userfaultfd.h>
#include <pthread.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void *until_told(void *end)
{
    char byte;
    CHECK(read(*(int *)end, &byte, 1) == 1);
    return NULL;
}

int main(void)
{
    int end[2];
    pthread_t other;
    char *wiped = memory(4 * MB, 1), *left = memory(4 * MB, 2), *rest = memory(4 * MB, 3);
    seal();
    CHECK(pipe(end) == 0 && pthread_create(&other, NULL, until_told, end) == 0);
    CHECK(call_seal() == -1);

    CHECK(madvise(wiped, MB, MADV_WIPEONFORK) == 0 && intact(wiped, 4 * MB, 1));
    char *moved = mremap(left, 4 * MB, 4 * MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(moved != MAP_FAILED && intact(moved, 4 * MB, 2) && zeros(left, 4 * MB));
    if (in_clone()) {
        CHECK(zeros(wiped, MB) && intact(moved, 4 * MB, 2) && zeros(left, 4 * MB));
        _exit(0);
    }
    CHECK(sealed_bytes(rest, 4 * MB) == 4 * MB);
    if (syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY) >= 0)
        CHECK(sealed_bytes(ALL) == 0);
    CHECK(intact(rest, 4 * MB, 3));
    /* That was for these calls alone. */
    CHECK(call_seal() == -1);
    CHECK(write(end[1], "", 1) == 1 && pthread_join(other, NULL) == 0);
    return 0;
}
