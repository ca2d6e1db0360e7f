/* On a kernel without on-demand fork engine odf says so in one line, and forks are plain and right; both ways to ask are
   EINVAL. */
#include "odf.h"
#include <linux/sched.h>

int main(int count, char **arguments)
{
	char said[1000] = "";
	size_t length = 0;
	ssize_t n;
	int ends[2];
	if (count == 2) {
		char *p = memory(8 * MB, 1);
		IN_CLONE
			fill(p, 8 * MB, 2);
		return intact(p, 8 * MB, 1) ? 0 : 1;
	}
	if (is_on_demand() != -1)
		SKIP("this kernel has on-demand fork");
	CHECK(errno == EINVAL && prctl(PR_SET_ODF, 1, 0, 0, 0) == -1 && errno == EINVAL);
	struct clone_args args = {.flags = CLONE_ODF, .exit_signal = SIGCHLD};
	CHECK(syscall(SYS_clone3, &args, sizeof args) == -1 && errno == EINVAL);

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	pid_t pid = forked();
	if (pid == 0) {
		setenv("FLASHFORK_ENGINE", "odf", 1);
		dup2(ends[1], 2);
		execl("/proc/self/exe", arguments[0], "forks", NULL);
		_exit(2);
	}
	close(ends[1]);
	while ((n = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
		length += (size_t)n;
	CHECK(wait_for(pid) == 0);
	char *end = strchr(said, '\n');
	CHECK(end != NULL && end[1] == '\0');
	CHECK(strstr(said, "engine odf") && strstr(said, "forks stay plain"));
}
