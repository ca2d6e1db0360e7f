/* MADV_DONTDUMP: used for keys. A sealed copy would live on in the memfd after the program has wiped its page.
   madvise(2); OpenSSL's secure heap does this. */
#include "../behaviour.h"

int main(void)
{
    char *secret = memory(4 * MB, 1);
    CHECK(madvise(secret, 4 * MB, MADV_DONTDUMP) == 0);
    seal();
    CHECK(sealed_bytes(secret, 4 * MB) == 0);
    memset(secret, 0, 4 * MB);
    if (in_clone()) {
        CHECK(zeros(secret, 4 * MB));
        _exit(0);
    }
    return 0;
}
