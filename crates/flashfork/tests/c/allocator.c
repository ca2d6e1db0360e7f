/* Tells what a seal says: "sealed", or errno and the text. With MARKER: as if jemalloc were linked in. */
#include "check.h"

#ifdef MARKER
const char marker[] = "<jemalloc>: Error in ";
#else
const char marker[] = "none";
#endif

int main(int argc, char **argv)
{
    struct flashfork_seal_options options = {0};

    CHECK(marker[0]);
    warm();
    options.trust_allocator = argc > 1 && !strcmp(argv[1], "trust");
    if (flashfork_seal(&options, NULL) == 0)
        puts("sealed");
    else
        printf("%s: %s\n", errno == EOPNOTSUPP ? "EOPNOTSUPP" : strerror(errno), flashfork_last_error());
    return 0;
}
