/* Private file mappings: debuggers and sanitizers look the file's name up in maps, fork copies only the few pages that
   were written, and pages that were not show what the file holds. proc_pid_maps(5). Of libraries, what the loader
   mapped to be written is sealed where there is much of it and none of it shows the file: then forks get faster by it.
   cflags: -ldl */
#include "../libraries.h"

static uint64_t own[4 * MB / 8] = {1};

int main(void)
{
	FILE *file = tmpfile();
	CHECK(file != NULL && ftruncate(fileno(file), 4 * MB) == 0);
	char *p = mmap(NULL, 4 * MB, RW, MAP_PRIVATE, fileno(file), 0);
	CHECK(p != MAP_FAILED);
	fill(p, 4 * MB, 1);
	fill(own, sizeof own, 2);
	struct library few = load_library(50);
	fill(data(&few), DATA_LEN, 50);
	seal();
	CHECK(sealed_bytes(relro(&few), PAGE + DATA_LEN) == 0);
	struct library *all = load_libraries();
	/* A page that nobody has written to, and what is no library's. */
	CHECK(madvise(data(&all[1]) + PAGE, PAGE, MADV_DONTNEED) == 0);
	int fd = open(all[2].path, O_RDONLY | O_CLOEXEC);
	char *mapped = mmap(NULL, DATA_LEN, RW, MAP_PRIVATE, fd, (off_t)(2 * PAGE));
	CHECK(mapped != MAP_FAILED && close(fd) == 0);
	fill(mapped, DATA_LEN, 3);
	seal();
	CHECK(all_sealed(relro(&all[1]), PAGE) && sealed_bytes(data(&all[1]), DATA_LEN) == 0);
	CHECK(as_in_file(&all[1], 1, PAGE, PAGE) && is_sealed(&all[2]) && as_written(&all[2], 2));
	CHECK(sealed_bytes(mapped, DATA_LEN) == 0 && sealed_bytes(p, 4 * MB) == 0 && sealed_bytes(own, sizeof own) == 0);
	/* Nor what forks write to. */
	CHECK(sealed_bytes(stdout, PAGE) == 0 && sealed_bytes(&_r_debug, sizeof _r_debug) == 0);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1) && intact(own, sizeof own, 2) && intact(mapped, DATA_LEN, 3));
	char first;
	CHECK(pread(fileno(file), &first, 1, 0) == 1 && first == 0);
}
