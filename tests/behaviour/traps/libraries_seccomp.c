/* The data of libraries is sealed when a program puts itself under a filter that kills on a call by which the engine
   would have to ask for their files: what it discards there shows the file, and nothing ends it. seccomp(2).
   cflags: -ldl */
#include "../filter.h"
#include "../libraries.h"

int main(void)
{
	static const int calls[] = {SYS_openat, SYS_newfstatat, SYS_mmap, SYS_mremap, SYS_process_vm_writev, SYS_close};
	struct library *all = load_libraries();
	seal();
	CHECK(is_sealed(&all[1]));
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		pid_t pid = forked();
		if (pid == 0) {
			enter(calls[i], SECCOMP_RET_KILL_PROCESS, i % 2 == 0);
			CHECK(madvise(data(&all[1]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[1], 1, 0, DATA_LEN));
			CHECK(as_written(&all[2], 2));
			_exit(0);
		}
		int status = wait_for(pid);
		if (status != 0)
			fprintf(stderr, "system call %d: ends with %d\n", calls[i], status);
		CHECK(status == 0);
	}
	CHECK(is_sealed(&all[1]) && as_written(&all[1], 1));
}
