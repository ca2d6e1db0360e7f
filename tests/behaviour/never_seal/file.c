/* Private file mappings, .data among them: debuggers and sanitizers look the file's name up in maps, and fork copies only
   the few pages that were written. proc_pid_maps(5). */
#include "../behaviour.h"

static uint64_t data[4 * MB / 8] = {1};

int main(void)
{
    FILE *file = tmpfile();
    CHECK(file != NULL && ftruncate(fileno(file), 4 * MB) == 0);
    char *p = mmap(NULL, 4 * MB, RW, MAP_PRIVATE, fileno(file), 0);
    CHECK(p != MAP_FAILED);
    fill(p, 4 * MB, 1);
    fill(data, sizeof data, 2);
    seal();
    CHECK(sealed_bytes(p, 4 * MB) == 0);
    CHECK(sealed_bytes(data, sizeof data) == 0);
    if (in_clone()) {
        CHECK(intact(p, 4 * MB, 1) && intact(data, sizeof data, 2));
        _exit(0);
    }
    char first;
    CHECK(pread(fileno(file), &first, 1, 0) == 1 && first == 0);
    return 0;
}
