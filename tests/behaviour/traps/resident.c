/* Resident memory as the kernel counts it: a seal takes memory out of RssAnon, reading brings it back as RssShmem, each page written counts as RssAnon beside its
   sealed original. proc_pid_status(5). */

#define SIZE (32 * MB)
#define KB(bytes) ((long)((bytes) >> 10))
/* Kernels before 6.2 count by the task first and add to the process's sum now and then. */
#define SLACK KB(MB)

int main(void)
{
	char *p = memory(SIZE, 1);
	long before = status_kb("RssAnon");
	CHECK(before >= KB(SIZE) - SLACK);
	seal();
	CHECK(all_sealed(p, SIZE));
	CHECK(status_kb("RssAnon") <= before - KB(SIZE) + 2 * SLACK);
	CHECK(intact(p, SIZE, 1) && status_kb("RssShmem") >= KB(SIZE) - SLACK);
	long read_only = status_kb("RssAnon");
	fill(p, SIZE / 2, 2);
	CHECK(status_kb("RssAnon") >= read_only + KB(SIZE / 2) - SLACK);
}
