/* A process that holds or maps a device which isn't known to be harmless: a driver may pin user pages and write them at any time.
   Documentation/core-api/pin_user_pages.rst. What is known to be harmless stands in nobody's way. */
#include "../stand_in.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static const char *const devices[] = {"/dev/mem", "/dev/loop-control", "/dev/rtc0", "/dev/hpet", "/dev/cpu_dma_latency",
                                      "/dev/mapper/control", "/dev/vcs", "/dev/uinput", "/dev/autofs", "/dev/vga_arbiter",
                                      "/dev/hwrng", "/dev/nvram", "/dev/snapshot", "/dev/userio", NULL};

static int harmless(void)
{
	sigset_t set;
	sigemptyset(&set);
	CHECK(eventfd(0, 0) >= 0 && epoll_create1(0) >= 0 && timerfd_create(CLOCK_MONOTONIC, 0) >= 0);
	CHECK(signalfd(-1, &set, 0) >= 0 && inotify_init1(0) >= 0);
	const char *const paths[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/tty"};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		open(paths[i], O_RDWR | O_NOCTTY); /* where there is one */
	syscall(SYS_pidfd_open, getpid(), 0);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, open("/dev/zero", O_RDWR), 0) != MAP_FAILED);
	seal();
	unseal();
	return 0;
}

int main(void)
{
	CHECK(harmless() == 0);
	int shown = 0;
	for (const char *const *path = devices; *path; path++) {
		int fd = open(*path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			continue;
		refused();
		close(fd);
		shown = 1;
	}
	if (own_mounts()) {
		/* Mapped, and closed. */
		CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
		CHECK(mount("tmpfs", "/dev", "tmpfs", 0, NULL) == 0);
		int fd = open("/dev/made-up0", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
		char *mapped = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
		CHECK(mapped != MAP_FAILED);
		close(fd);
		refused();
		CHECK(munmap(mapped, PAGE) == 0);
		shown = 1;
	}
	if (!shown)
		SKIP("no such device may be opened here");
	seal();
}
