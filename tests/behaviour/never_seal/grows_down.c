/* MAP_GROWSDOWN: a file mapping doesn't grow by faults. mmap(2). */
#include "../behaviour.h"

int main(void)
{
    char *p = map_alone(4 * MB, RW, MAP_PRIVATE | MAP_GROWSDOWN);
    CHECK(p != NULL);
    fill(p, 4 * MB, 1);
    seal();
    CHECK(sealed_bytes(p, 4 * MB) == 0);
    if (in_clone()) {
        p[-1] = 1; /* the page below comes into being */
        CHECK(intact(p, 4 * MB, 1));
        _exit(0);
    }
    p[-1] = 1;
    CHECK(intact(p, 4 * MB, 1));
    return 0;
}
