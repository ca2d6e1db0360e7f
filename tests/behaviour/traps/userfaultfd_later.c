/* A userfaultfd after the seal: on a file mapping its faults would mean something else, so all memory is anonymous first.
   userfaultfd(2). */
#include <linux/userfaultfd.h>

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	char *p = memory(4 * MB, 1);
	seal();
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		SKIP("userfaultfd is not allowed here");
	CHECK(sealed_bytes(ALL) == 0 && intact(p, 4 * MB, 1));
	struct uffdio_register reg = {.range = {(size_t)p, 4 * MB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	CHECK(ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &reg) == 0);
	/* A missing page is one that was discarded: served with zeros by the program's own rules. */
	struct uffdio_zeropage zero = {.range = {(size_t)p, PAGE}};
	CHECK(madvise(p, PAGE, MADV_DONTNEED) == 0 && ioctl(fd, UFFDIO_ZEROPAGE, &zero) == 0);
	CHECK(zeros(p, PAGE) && *(uint64_t *)(p + PAGE) == pattern(PAGE / 8, 1));
}
