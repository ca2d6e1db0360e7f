/* MADV_WIPEONFORK: a clone must read zeros, or two processes would draw the same random numbers. madvise(2).
   Set after a seal: traps/wipe_on_fork_later.c. */
#include "../behaviour.h"

int main(void)
{
    char *p = memory(4 * MB, 1);
    CHECK(madvise(p, 4 * MB, MADV_WIPEONFORK) == 0);
    seal();
    CHECK(sealed_bytes(p, 4 * MB) == 0);
    if (in_clone()) {
        CHECK(zeros(p, 4 * MB));
        _exit(0);
    }
    CHECK(intact(p, 4 * MB, 1));
    return 0;
}
