/* One discard is one event for who watches memory by a userfaultfd (UFFD_EVENT_REMOVE), in a process that was sealed too: a monitor
   that reads one event for each call goes on, and so does the call. userfaultfd(2). */
#include <linux/userfaultfd.h>

#define DISCARDS 20

static int fd;

static void *read_events(void *unused)
{
	struct uffd_msg msg;
	for (int i = 0; i < DISCARDS; i++)
		CHECK(read(fd, &msg, sizeof msg) == sizeof msg && msg.event == UFFD_EVENT_REMOVE);
	return unused;
}

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE};
	pthread_t monitor;
	char *p = memory(4 * MB, 1);
	seal();
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
		SKIP("no userfaultfd with events to be had here");
	struct uffdio_register all = {.range = {(uintptr_t)p, 4 * MB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	CHECK(ioctl(fd, UFFDIO_REGISTER, &all) == 0);
	START(&monitor, read_events, NULL);
	for (size_t i = 0; i < DISCARDS; i++)
		CHECK(madvise(p + i * PAGE, PAGE, MADV_DONTNEED) == 0);
	JOIN(monitor);
}
