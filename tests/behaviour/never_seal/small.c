/* Runs under 2 MB: one more mapping costs a fork as much as the page table it saves. */
#include "../behaviour.h"

int main(void)
{
    char *p = memory(MB, 1);
    seal();
    CHECK(sealed_bytes(p, MB) == 0);
    if (in_clone()) {
        CHECK(intact(p, MB, 1));
        _exit(0);
    }
    return 0;
}
