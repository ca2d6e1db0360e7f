/* Memory locks: mlock and mlockall are not inherited. mlock(2).
   clone: missing
   do: lock in the clone, which copies what it locks */
#include "../behaviour.h"

int main(void)
{
    char *p = map_alone(16 * PAGE, RW, MAP_PRIVATE);
    CHECK(p != NULL);
    seal();
    if (mlock(p, 16 * PAGE) != 0)
        SKIP("memory may not be locked here: %s", strerror(errno));
    CHECK(status_kb("VmLck") == 64);
    if (in_clone()) {
        CHECK(status_kb("VmLck") == 0);
        _exit(0);
    }
    return 0;
}
