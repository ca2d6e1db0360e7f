/* An ordinary user can seal: nothing of it needs root. */
#include "../behaviour.h"
#include <grp.h>
#include <sys/prctl.h>

int main(void)
{
    if (geteuid() == 0) {
        CHECK(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
        CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* as after an exec */
    }
    char *p = memory(8 * MB, 1);
    seal();
    CHECK(sealed_bytes(p, 8 * MB) == 8 * MB);
    CHECK(madvise(p, MB, MADV_DONTNEED) == 0 && zeros(p, MB));
    unseal();
    return 0;
}
