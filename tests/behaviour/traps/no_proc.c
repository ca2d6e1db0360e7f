/* A sealed process whose /proc somebody takes away: clones are right, a further seal fails cleanly, and a discard gives zeros.
   chroot(2), clone(2) with CLONE_FS. */
#include "../behaviour.h"

int main(void)
{
    char *p = memory(4 * MB, 1), *gone = memory(4 * MB, 2);
    seal();
    if (!lose_proc())
        SKIP("no chroot without root or user namespaces");
    if (in_clone()) {
        CHECK(intact(p, 4 * MB, 1));
        CHECK(madvise(gone, 4 * MB, MADV_DONTNEED) == 0 && zeros(gone, 4 * MB));
        CHECK(flashfork_preload_seal() == -1);
        _exit(0);
    }
    CHECK(intact(p, 4 * MB, 1) && intact(gone, 4 * MB, 2));
    return 0;
}
