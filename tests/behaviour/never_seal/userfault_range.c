/* A range registered with a userfaultfd that another process holds: its faults belong to that program, which a new mapping
   would forget. Here the process has no descriptor of it any more. userfaultfd(2); never_seal/userfaultfd.c is the other case. */
#include <linux/userfaultfd.h>

int main(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	char *p = memory(4 * MB, 1);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd < 0)
		SKIP("userfaultfd is not allowed here");
	struct uffdio_register reg = {.range = {(size_t)p, 4 * MB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	CHECK(ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &reg) == 0);
	int end[2];
	CHECK(pipe(end) == 0);
	pid_t other = fork();
	if (other == 0) {
		close(end[1]);
		_exit(read(end[0], &api, 1) != 0); /* holds the descriptor until we are done */
	}
	close(fd);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0 && strstr(smaps(p, "VmFlags"), " um "));
	CHECK(intact(p, 4 * MB, 1));
	close(end[1]);
	CHECK(wait_for(other) == 0);
}
