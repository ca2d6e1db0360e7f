/* mlockall(MCL_FUTURE): every new mapping would be locked, and locking private memory copies it at once. mlockall(2). */
#include "../behaviour.h"

int main(void)
{
    if (mlockall(MCL_FUTURE) != 0)
        SKIP("mlockall is not allowed here (RLIMIT_MEMLOCK)");
    refused();
    CHECK(munlockall() == 0);
    seal();
    return 0;
}
