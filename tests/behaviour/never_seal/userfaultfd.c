/* A process with a userfaultfd: its faults belong to somebody, who may register any range next. userfaultfd(2). */
#include <linux/userfaultfd.h>

int main(void)
{
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		SKIP("userfaultfd is not allowed here");
	refused();
	close(fd);
	fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC); /* Linux 6.1: one is a single ioctl away */
	if (fd >= 0) {
		refused();
		close(fd);
	}
	seal();
}
