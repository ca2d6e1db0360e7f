/* A userfaultfd after the seal, in a process with other threads: every discarded page is missing, and its owner is asked for it. */
#include <linux/userfaultfd.h>
#include <poll.h>

#define LEN (4 * MB)

static int open_userfaultfd(void);

static int fd;
static volatile size_t served;

static void *serve(void *unused)
{
	struct uffd_msg msg;
	while (read(fd, &msg, sizeof msg) == sizeof msg) {
		struct uffdio_zeropage zero = {.range = {msg.arg.pagefault.address & ~(PAGE - 1), PAGE}};
		CHECK(msg.event == UFFD_EVENT_PAGEFAULT);
		served++;
		CHECK(ioctl(fd, UFFDIO_ZEROPAGE, &zero) == 0);
	}
	return unused;
}

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	pthread_t server, other;
	int end[2];
	char *p = memory(LEN, 1);
	fd = open_userfaultfd();
	if (fd < 0)
		SKIP("userfaultfd is not allowed here");
	close(fd);
	seal();
	CHECK(all_sealed(p, LEN));
	make_other(&other, end);
	fd = open_userfaultfd();
	CHECK(fd >= 0 && sealed_bytes(ALL) == 0 && *(uint64_t *)(p + PAGE) == pattern(PAGE / 8, 1));
	struct uffdio_register reg = {.range = {(size_t)p, LEN}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	CHECK(ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &reg) == 0);
	CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
	START(&server, serve, NULL);
	CHECK(discard_zeros(p, LEN) && served == LEN / PAGE);
	end_other(other, end);
}
