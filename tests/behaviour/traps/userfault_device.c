/* A userfaultfd out of /dev/userfaultfd, opened before the seal's memory is made anonymous again. userfaultfd(2), Linux 6.1. */
#include "../userfault.h"

static int open_userfaultfd(void)
{
	int error, fd = -1, device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device >= 0) {
		fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
		error = errno;
		close(device);
		errno = error;
	}
	return fd;
}
