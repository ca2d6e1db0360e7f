/* A mapping that lies in pieces since the seal, because of a guard in it for example, is made smaller and moved: the kernel asks
   nothing about what is cut off, so a hole, another protection, a file or nothing at all may lie there. mremap(2), madvise(2). */
#include "../beside_plain.h"

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, Linux 6.13 */

/* Whether each of some pages is mapped, and can be read. */
static void note_pages(char *p, size_t len)
{
	unsigned char there;
	for (size_t at = 0; at < len; at += MB / 4) {
		note(mincore(p + at, PAGE, &there) == 0);
		NOTE_CALL(madvise(p + at, PAGE, 22 /* MADV_POPULATE_READ */));
	}
}

/* Makes LEN bytes, of which one page may be a guard, half as long and moves them. */
static void shrink(char *p)
{
	char *to = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	errno = 0;
	char *moved = mremap(p, LEN, LEN / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	note(moved == MAP_FAILED ? -1 : moved == to);
	note(errno);
	note_pages(p, LEN);
	note_pages(to, LEN / 2);
	if (moved == to) {
		note(intact(to, MB / 2, 1));
		note(((uint64_t *)to)[MB / 4 - 1] == pattern(MB / 4 - 1, 1));
	}
}

static void hole(char *p)
{
	CHECK(munmap(p + 3 * MB, MB / 2) == 0);
}

static void nothing(char *p)
{
	CHECK(munmap(p + 2 * MB, 2 * MB) == 0);
}

static void protection(char *p)
{
	CHECK(mprotect(p + 3 * MB, MB, PROT_READ) == 0);
}

static void file(char *p)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && mmap(p + 3 * MB, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == p + 3 * MB && close(fd) == 0);
}

static void guard_behind(char *p)
{
	CHECK(madvise(p + 3 * MB, PAGE, GUARD_INSTALL) == 0);
}

static void discarded(char *p)
{
	CHECK(madvise(p + MB / 2, PAGE, MADV_DONTNEED) == 0 && munmap(p + 3 * MB, PAGE) == 0);
}

/* What is refused on plain memory is refused here, and the same is left. */
static void hole_before(char *p)
{
	CHECK(munmap(p + MB + MB / 2, PAGE) == 0 && munmap(p + 3 * MB, PAGE) == 0);
}

static void differs_before(char *p)
{
	CHECK(madvise(p + MB + MB / 2, PAGE, MADV_DONTDUMP) == 0 && munmap(p + 3 * MB, PAGE) == 0);
}

static void (*change)(char *);

/* One mapping to the program, several once it was sealed: it is changed further, made smaller and moved. */
static void in_pieces(char *p)
{
	CHECK(madvise(p + MB, PAGE, GUARD_INSTALL) == 0);
	change(p);
	shrink(p);
}

int main(void)
{
	static void (*const cases[])(char *) = {
		hole, nothing, protection, file, guard_behind, discarded, hole_before, differs_before,
	};
	if (madvise(map_alone(MB, RW, MAP_PRIVATE), PAGE, GUARD_INSTALL) != 0)
		SKIP("the kernel has no guards (MADV_GUARD_INSTALL, Linux 6.13)");
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
		if (in_clone()) {
			change = cases[c];
			_exit(same_as_plain(in_pieces));
		}
}
