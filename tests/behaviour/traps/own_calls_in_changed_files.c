/* A file whose code was harmless at a seal, and that has other code now: written in place, replaced, another part of it, or another file
   where it was mapped. Nothing else has changed. The next seal is refused, and what the new code discards reads zeros. */
#include "../own_calls.h"

#define AT ((char *)0x200000000000)

static const unsigned char harmless[] = {0xb8, 0, 0, 0, 0, 0xc3}; /* mov $0,%eax; ret */

static void write_page(const char *path, off_t at, const unsigned char *code, size_t len)
{
	char page[PAGE] = {0};
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0700);
	memcpy(page, code, len);
	CHECK(fd >= 0 && pwrite(fd, page, PAGE, at) == (ssize_t)PAGE && close(fd) == 0);
}

#define WRITE(path, at, code) write_page(path, at, code, sizeof(code))

static void map(const char *path, off_t at, int prot)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && mmap(AT, PAGE, prot, MAP_PRIVATE | MAP_FIXED, fd, at) == AT && close(fd) == 0);
}

static void written_in_place(void)
{
	WRITE("./code", 0, discards);
}

static void written_in_place_and_mapped_anew(void)
{
	CHECK(munmap(AT, PAGE) == 0);
	WRITE("./code", 0, discards);
	map("./code", 0, PROT_READ | PROT_EXEC);
}

static void replaced(void)
{
	WRITE("./new", 0, discards);
	CHECK(rename("./new", "./code") == 0);
	map("./code", 0, PROT_READ | PROT_EXEC);
}

static void another_part(void)
{
	map("./code", PAGE, PROT_READ | PROT_EXEC);
}

static void another_part_that_is_read_first(void)
{
	map("./code", PAGE, PROT_READ);
	CHECK(mprotect(AT, PAGE, PROT_READ | PROT_EXEC) == 0);
}

static void another_file(void)
{
	WRITE("./other", 0, discards);
	CHECK(munmap(AT, PAGE) == 0);
	map("./other", 0, PROT_READ | PROT_EXEC);
}

int main(void)
{
	void (*changes[])(void) = {written_in_place, written_in_place_and_mapped_anew, replaced, another_part,
	                           another_part_that_is_read_first, another_file};
	/* Memory is sealed while it changes, or it isn't: then nobody looks at what is mapped before the next seal. */
	for (size_t turn = 0; turn < 2 * sizeof changes / sizeof changes[0]; turn++) {
		int sealed = turn % 2, in_place = turn / 2 == 0;
		IN_CLONE {
			WRITE("./code", 0, harmless);
			WRITE("./code", PAGE, discards);
			map("./code", 0, PROT_READ | PROT_EXEC);
			char *p = memory_at_place();
			seal();
			CHECK(all_sealed(p, PLACE_LEN));
			if (!sealed)
				CHECK(flashfork_preload_unseal() == 0 && sealed_bytes(ALL) == 0);
			changes[turn / 2]();
			if (sealed && in_place) { /* Nobody is told of that: it counts from the next seal on. */
				memory(4 * MB, 1);
				_exit(call_seal() != -1);
			}
			CHECK(sealed_bytes(ALL) == 0 && call_seal() == -1 && sealed_bytes(ALL) == 0);
			((void (*)(void))(void *)AT)();
			CHECK(zeros(p, PLACE_LEN));
		}
	}
}
