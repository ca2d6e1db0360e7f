/* MADV_DONTNEED on sealed memory would give the sealed bytes back; programs count on zeros, jemalloc's calloc among them.
   madvise(2); in the process itself and in a clone. */
#include "../behaviour.h"

int main(void)
{
    char *p = memory(4 * MB, 1);
    seal();
    if (in_clone()) {
        CHECK(madvise(p, 4 * MB, MADV_DONTNEED) == 0 && zeros(p, 4 * MB));
        fill(p, 4 * MB, 2);
        CHECK(intact(p, 4 * MB, 2));
        _exit(0);
    }
    CHECK(intact(p, 4 * MB, 1));
    CHECK(madvise(p, 4 * MB, MADV_DONTNEED) == 0 && zeros(p, 4 * MB));
    if (in_clone()) {
        CHECK(zeros(p, 4 * MB));
        _exit(0);
    }
    return 0;
}
