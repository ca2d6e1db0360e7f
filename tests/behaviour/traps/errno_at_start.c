/* A program finds errno 0 when it starts: what the shim looks at before leaves nothing there. errno(3), C11 7.5. */
#include "../behaviour.h"

int main(void)
{
    int first = errno;
    char *p = memory(4 * MB, 1);
    seal();
    CHECK(first == 0 && sealed_bytes(p, 4 * MB) == 4 * MB);
    return 0;
}
