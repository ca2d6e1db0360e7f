/* A device that isn't known to be harmless, opened after a seal: before its driver is asked for anything, which may be to write to the
   program's memory later, all memory is anonymous. ioctl(2). */

static const char *const devices[] = {"/dev/loop-control", "/dev/hwrng", "/dev/kvm", "/dev/rtc0", "/dev/hpet", "/dev/mem",
                                      "/dev/cpu_dma_latency", "/dev/autofs", "/dev/vga_arbiter", NULL};

static char *p;

static int open_device(void)
{
	int fd = -1;
	for (const char *const *path = devices; *path && fd < 0; path++)
		fd = open(*path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd;
}

static void asks(int fd)
{
	CHECK(all_sealed(p, 8 * MB));
	errno = 0;
	CHECK(ioctl(fd, 0, 0) == -1 && errno != ENOMEM);
	CHECK(sealed_bytes(ALL) == 0 && intact(p, 8 * MB, 1));
	CHECK(discard_zeros(p + MB, PAGE));
}

int main(void)
{
	int end[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
	p = memory(8 * MB, 1);
	seal();
	CHECK(null >= 0 && ioctl(null, TIOCGWINSZ, 0) == -1 && all_sealed(p, 8 * MB));
	int fd = open_device();
	if (fd < 0)
		SKIP("no such device may be opened here");
	IN_CLONE
		asks(fd);
	IN_CLONE {
		pthread_t other;
		make_other(&other, end);
		asks(fd);
		end_other(other, end);
	}
}
