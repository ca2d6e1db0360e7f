/* The data of libraries is sealed, and then their files change: one is replaced by another of its name, one becomes
   shorter, one is written to where it lies. What was written stays, whatever happens to the memory, and nothing but the
   library's own file shows through: where that is not to be had a discard is an error.
   cflags: -ldl */
#include "../libraries.h"

static void replace(const struct library *l)
{
	write_library("./other.so", 77);
	CHECK(rename("./other.so", l->path) == 0);
}

static void shorten(const struct library *l)
{
	CHECK(truncate(l->path, (off_t)PAGE) == 0);
}

/* New bytes where the data is. */
static void overwrite(const struct library *l)
{
	static uint64_t bytes[DATA_LEN / 8];
	fill(bytes, DATA_LEN, FILE_SEED + 88);
	int fd = open(l->path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && pwrite(fd, bytes, DATA_LEN, (off_t)(2 * PAGE)) == (ssize_t)DATA_LEN && close(fd) == 0);
}

/* An error, and nothing is done. */
static void not_discarded(struct library *l, uint64_t number)
{
	errno = 0;
	CHECK(madvise(data(l), DATA_LEN, MADV_DONTNEED) == -1 && errno == EAGAIN);
	CHECK(as_written(l, number));
}

int main(void)
{
	struct library *all = load_libraries();
	seal();
	CHECK(is_sealed(&all[1]) && is_sealed(&all[2]) && is_sealed(&all[3]));
	replace(&all[1]);
	replace(&all[4]);
	shorten(&all[2]);
	overwrite(&all[3]);
	CHECK(as_written(&all[1], 1) && as_written(&all[2], 2) && as_written(&all[3], 3));
	IN_CLONE {
		not_discarded(&all[1], 1);
		not_discarded(&all[2], 2);
		CHECK(madvise(data(&all[3]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[3], 88, 0, DATA_LEN));
	}
	not_discarded(&all[1], 1);
	unseal();
	for (int i = 0; i < LIBRARIES; i++)
		CHECK(as_written(&all[i], (uint64_t)i));
	not_discarded(&all[1], 1);
	not_discarded(&all[2], 2);
	CHECK(madvise(data(&all[3]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[3], 88, 0, DATA_LEN));
	/* What comes there when it is unloaded is memory like any other. */
	char *there = data(&all[4]);
	CHECK(dlclose(all[4].handle) == 0);
	CHECK(mmap(there, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == there);
	*there = 1;
	CHECK(madvise(there, PAGE, MADV_DONTNEED) == 0 && *there == 0);
	/* Without their files libraries are left alone. */
	seal();
	CHECK(sealed_bytes(data(&all[1]), DATA_LEN) == 0 && is_sealed(&all[7]));
}
