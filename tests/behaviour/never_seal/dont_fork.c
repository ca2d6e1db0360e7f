/* MADV_DONTFORK: a clone must not have the memory. madvise(2). Set after a seal: traps/dont_fork_later.c. */
#include "../behaviour.h"

int main(void)
{
    unsigned char there;
    char *p = memory(4 * MB, 1);
    CHECK(madvise(p, 4 * MB, MADV_DONTFORK) == 0);
    seal();
    CHECK(sealed_bytes(p, 4 * MB) == 0);
    if (in_clone()) {
        CHECK(mincore(p, PAGE, &there) == -1 && errno == ENOMEM);
        _exit(0);
    }
    CHECK(intact(p, 4 * MB, 1));
    return 0;
}
