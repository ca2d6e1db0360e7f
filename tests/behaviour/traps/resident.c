/* Resident memory as the kernel counts it: a seal takes memory out of RssAnon, reading brings it back as RssShmem, each page written counts as RssAnon beside its
   sealed original. proc_pid_status(5). */
#include "../behaviour.h"

#define SIZE (32 * MB)
#define KB(bytes) ((long)((bytes) >> 10))

int main(void)
{
    char *p = memory(SIZE, 1);
    long before = status_kb("RssAnon");
    CHECK(before >= KB(SIZE));
    seal();
    CHECK(sealed_bytes(p, SIZE) == SIZE);
    CHECK(status_kb("RssAnon") <= before - KB(SIZE) + KB(MB));
    CHECK(intact(p, SIZE, 1) && status_kb("RssShmem") >= KB(SIZE));
    long read_only = status_kb("RssAnon");
    fill(p, SIZE / 2, 2);
    CHECK(status_kb("RssAnon") >= read_only + KB(SIZE / 2));
    return 0;
}
