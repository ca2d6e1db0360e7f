/* A mremap that is to shrink a range and is refused, for a hole in it or for parts that differ, leaves what it leaves of plain
   memory: nothing of the end is lost that plain memory keeps. One to addresses that nobody can have is told so. mremap(2). */
#include "../beside_plain.h"

/* What of a range is mapped, MB by MB. */
static void note_mapped(char *p, size_t len)
{
	unsigned char there;
	for (size_t i = 0; i < len; i += MB)
		note(mincore(p + i, PAGE, &there) == 0);
}

/* Shrinks LEN to half of it, at new addresses; and notes what is where then. */
static void shrink(char *p, int flags)
{
	char *to = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	errno = 0;
	char *moved = mremap(p, LEN, LEN / 2, flags, to);
	note(moved == MAP_FAILED ? -1 : moved == p ? 0 : 1);
	note(errno);
	note_mapped(p, LEN);
	note_mapped(to, LEN);
}

static void hole(char *p)
{
	CHECK(munmap(p + MB, MB) == 0);
	shrink(p, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void hole_in_the_end(char *p)
{
	CHECK(munmap(p + 3 * MB, MB / 2) == 0);
	shrink(p, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void hole_in_front(char *p)
{
	CHECK(munmap(p, MB) == 0);
	shrink(p, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void hole_in_front_in_place(char *p)
{
	CHECK(munmap(p, MB) == 0);
	NOTE_CALL(mremap(p, LEN, LEN / 2, MREMAP_MAYMOVE) == MAP_FAILED);
	note_mapped(p, LEN);
}

static void parts_differ(char *p)
{
	CHECK(mprotect(p + MB, MB, PROT_READ) == 0);
	shrink(p, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void asked_of_a_part(char *p)
{
	CHECK(madvise(p + MB, MB, MADV_DONTDUMP) == 0);
	shrink(p, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void whole(char *p)
{
	shrink(p, MREMAP_MAYMOVE | MREMAP_FIXED);
}

static void nowhere(char *p)
{
	char *beyond = (char *)0x7ffffffff000 - LEN;
	NOTE_CALL(mremap(p, LEN / 2, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, beyond + PAGE) == MAP_FAILED);
	NOTE_CALL(mremap(p, -PAGE, LEN, MREMAP_MAYMOVE) == MAP_FAILED);
	note(intact(p, LEN, 1));
}

static void (*const cases[])(char *) = {
	hole, hole_in_the_end, hole_in_front, hole_in_front_in_place, parts_differ, asked_of_a_part, whole, nowhere,
};
#define CASES (sizeof cases / sizeof *cases)

/* In a process in which something is sealed, calls on plain memory go the same way: what is right was noted before. */
static int counts[CASES];
static long plainly[CASES][256];

static void all(char *p[CASES], const char *when)
{
	for (size_t c = 0; c < CASES; c++) {
		CHECK(all_sealed(p[c], LEN));
		notes = 0;
		cases[c](p[c]);
		CHECK(notes == counts[c]);
		for (int i = 0; i < notes; i++)
			if (noted[i] != plainly[c][i]) {
				fprintf(stderr, "case %zu %s, note %d: plain %ld, sealed %ld\n", c, when, i, plainly[c][i], noted[i]);
				_exit(1);
			}
	}
}

int main(void)
{
	int end[2];
	pthread_t other;
	char *first[CASES], *second[CASES];
	for (size_t c = 0; c < CASES; c++) {
		char *plain = memory(LEN, 1);
		notes = 0;
		cases[c](plain);
		counts[c] = notes;
		memcpy(plainly[c], noted, sizeof noted);
	}
	for (size_t c = 0; c < CASES; c++)
		first[c] = memory(LEN, 1), second[c] = memory(LEN, 1);
	seal();
	IN_CLONE
		all(first, "in a clone");
	all(first, "with one thread");
	make_other(&other, end);
	all(second, "with two threads");
	end_other(other, end);
}
