/* What the loader has protected of a library's data becomes writable again, so it is one mapping with the rest, which moves in one
   call, also where both were sealed. mremap(2).
   cflags: -ldl */
#include "../libraries.h"

#define WHOLE (PAGE + DATA_LEN)

static void move(const struct library *l, uint64_t number)
{
	CHECK(mprotect(relro(l), PAGE, RW) == 0);
	char *to = mmap(NULL, WHOLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	CHECK(mremap(relro(l), WHOLE, WHOLE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	const struct library moved = {.base = to - PAGE};
	CHECK(intact(data(&moved), DATA_LEN, number));
	CHECK(madvise(data(&moved), DATA_LEN, MADV_DONTNEED) == 0 && as_in_file(&moved, number, 0, DATA_LEN));
}

int main(void)
{
	struct library *all = load_libraries();
	move(&all[1], 1); /* plain */
	seal();
	CHECK(is_sealed(&all[2]) && is_sealed(&all[3]));
	IN_CLONE
		move(&all[2], 2);
	move(&all[2], 2);
	unseal();
	move(&all[3], 3);
}
