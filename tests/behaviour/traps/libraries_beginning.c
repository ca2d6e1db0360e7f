/* The data of libraries is sealed, and then the page goes that each begins with. It is still their file's memory: the file
   shows through where it is discarded, or a discard is an error where another file has its name.
   cflags: -ldl */
#include "../libraries.h"

static void keeps_data(const struct library *l, uint64_t number)
{
	errno = 0;
	CHECK(madvise(data(l), DATA_LEN, MADV_DONTNEED) == -1 && errno == EAGAIN);
	CHECK(intact(data(l), DATA_LEN, number));
}

static void change(struct library *all)
{
	CHECK(munmap(all[1].base, PAGE) == 0);
	CHECK(madvise(data(&all[1]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[1], 1, 0, DATA_LEN));
	/* Something else comes there. */
	CHECK(mmap(all[2].base, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == all[2].base);
	errno = 0;
	CHECK(madvise(data(&all[2]), DATA_LEN, MADV_FREE) == -1 && errno == EINVAL);
	CHECK(madvise(data(&all[2]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[2], 2, 0, DATA_LEN));
	CHECK(munmap(all[3].base, PAGE) == 0 && munmap(all[4].base, PAGE) == 0);
	for (int turn = 0; turn < 2; turn++)
		keeps_data(&all[3], 3);
	/* The page goes when a discard was refused already. */
	keeps_data(&all[5], 5);
	CHECK(munmap(all[5].base, PAGE) == 0);
	keeps_data(&all[5], 5);
}

int main(void)
{
	struct library *all = load_libraries();
	seal();
	for (int i = 1; i <= 5; i++)
		CHECK(is_sealed(&all[i]));
	for (int i = 3; i <= 5; i += 2) {
		write_library("./other.so", 77);
		CHECK(rename("./other.so", all[i].path) == 0);
	}
	IN_CLONE
		change(all);
	change(all);
	unseal();
	CHECK(intact(data(&all[3]), DATA_LEN, 3) && intact(data(&all[4]), DATA_LEN, 4));
	CHECK(madvise(data(&all[4]), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&all[4], 4, 0, DATA_LEN));
}
