/* Shared mappings: MAP_SHARED memory, System V segments and process-shared locks in them are the same memory for all, sealed or not. mmap(2).
   clone: shares
   do: nothing, if it is meant so; else map it anew in the clone */
#include "../behaviour.h"

int main(void)
{
    char *p = mmap(NULL, MB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    fill(p, MB, 1);
    seal();
    if (in_clone()) {
        fill(p, MB, 2);
        _exit(0);
    }
    CHECK(intact(p, MB, 2));
    return 0;
}
