/* The data of libraries, relocated pages among it, once it is sealed: it holds what it held, its file shows through
   where it is discarded, moved or unmapped, here and in a clone, and after an unseal its mappings are what they were.
   cflags: -ldl */
#include "../libraries.h"

/* What works on a file's memory in another way than on other memory, done to a library's. */
static void change(struct library *l, uint64_t number)
{
	/* One page in the middle goes, the others stay. */
	CHECK(madvise(data(l) + PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(as_in_file(l, number, PAGE, PAGE) && relocated(l, number));
	CHECK(memcmp(data(l), data(l) + PAGE, PAGE) != 0 && !as_in_file(l, number, 0, PAGE));
	fill(data(l), DATA_LEN, number);
	errno = 0;
	CHECK(madvise(data(l), DATA_LEN, MADV_FREE) == -1 && errno == EINVAL);
	CHECK(madvise(data(l), DATA_LEN, MADV_WIPEONFORK) == -1 && errno == EINVAL);
	CHECK(madvise(data(l), DATA_LEN, MADV_REMOVE) == -1 && errno == EACCES);
	CHECK(as_written(l, number));
	/* Across relocated and other pages, and what isn't sealed besides. */
	CHECK(madvise(l->base, 2 * PAGE + DATA_LEN, MADV_DONTNEED) == 0);
	CHECK(as_in_file(l, number, 0, DATA_LEN) && !relocated(l, number));
}

static void move(struct library *l, uint64_t number)
{
	char *to = mmap(NULL, DATA_LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mremap(data(l), DATA_LEN, DATA_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to && intact(to, DATA_LEN, number));
	CHECK(madvise(to, DATA_LEN, MADV_DONTNEED) == 0);
	struct library moved = {.base = to - 2 * PAGE};
	CHECK(as_in_file(&moved, number, 0, DATA_LEN));
	CHECK(mremap(to, DATA_LEN, DATA_LEN, MREMAP_MAYMOVE | MREMAP_FIXED, data(l)) == data(l));
	fill(data(l), DATA_LEN, number);
}

static void protect(struct library *l, uint64_t number)
{
	CHECK(mprotect(relro(l), PAGE, RW) == 0 && mprotect(data(l), DATA_LEN, PROT_NONE) == 0);
	relro(l)[PAGE - 1] = 1;
	CHECK(mprotect(data(l), DATA_LEN, RW) == 0 && as_written(l, number));
	relro(l)[PAGE - 1] = 0;
	CHECK(mprotect(relro(l), PAGE, PROT_READ) == 0);
}

int main(void)
{
	struct library *all = load_libraries();
	char before[LIBRARIES][2][256], head[256];
	for (int i = 0; i < LIBRARIES; i++) {
		snprintf(before[i][0], 256, "%s", mapping(relro(&all[i])));
		snprintf(before[i][1], 256, "%s", mapping(data(&all[i])));
	}
	snprintf(head, sizeof head, "%s", mapping(all[0].base));
	seal();
	for (int i = 0; i < LIBRARIES; i++)
		CHECK(is_sealed(&all[i]) && as_written(&all[i], (uint64_t)i));
	/* Whoever looks for the file by its name finds where it begins, and symbols with it. */
	Dl_info info;
	CHECK(strcmp(mapping(all[0].base), head) == 0 && dladdr(data(&all[0]), &info) && info.dli_fbase == all[0].base);
	IN_CLONE {
		for (int i = 0; i < LIBRARIES; i++)
			CHECK(as_written(&all[i], (uint64_t)i));
		fill(data(&all[0]), DATA_LEN, 99);
		change(&all[1], 1);
		move(&all[2], 2);
		protect(&all[3], 3);
		CHECK(mlock(data(&all[4]), DATA_LEN) == 0 && as_written(&all[4], 4));
		unseal();
		for (int i = 2; i < LIBRARIES; i++)
			CHECK(as_written(&all[i], (uint64_t)i));
	}
	CHECK(as_written(&all[0], 0) && is_sealed(&all[1]) && as_written(&all[1], 1));
	/* What is unloaded is gone; what is loaded afterwards, most likely in its place, is new. */
	CHECK(dlclose(all[5].handle) == 0);
	all[5] = load_library(5);
	CHECK(as_in_file(&all[5], 5, 0, DATA_LEN) && sealed_bytes(relro(&all[5]), PAGE + DATA_LEN) == 0);
	fill(data(&all[5]), DATA_LEN, 5);
	/* Written since, and sealed again. */
	data(&all[6])[PAGE] ^= 1;
	seal();
	CHECK(is_sealed(&all[6]));
	data(&all[6])[PAGE] ^= 1;
	for (int i = 0; i < LIBRARIES; i++)
		CHECK(as_written(&all[i], (uint64_t)i));
	protect(&all[3], 3);
	move(&all[2], 2);
	unseal();
	CHECK(sealed_bytes(ALL) == 0);
	for (int i = 0; i < LIBRARIES; i++) {
		CHECK(as_written(&all[i], (uint64_t)i));
		CHECK(i == 5 || strcmp(mapping(relro(&all[i])), before[i][0]) == 0);
		CHECK(i == 5 || strcmp(mapping(data(&all[i])), before[i][1]) == 0);
	}
	change(&all[7], 7);
	seal();
	CHECK(is_sealed(&all[1]));
	change(&all[1], 1);
}
