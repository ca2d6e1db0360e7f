/* The same done to plain memory and to sealed memory, and both must show the same: in a process with one thread, where sealed memory
   can be made anonymous first, and in one with two, where it can't. */

#define LEN (4 * MB)

static long noted[256];
static int notes;

/* Whatever is to be the same. */
static inline void note(long what)
{
	CHECK(notes < 256);
	noted[notes++] = what;
}

/* The result of a call, and its errno where it failed. */
#define NOTE_CALL(call) (errno = 0, note(call), note(errno))

static inline void note_discard(char *p, size_t len, int advice)
{
	NOTE_CALL(madvise(p, len, advice));
	note(zeros(p, len));
}

/* Which of the flags that a program can ask for a mapping has. */
static inline void note_flags(char *p)
{
	static const char letters[][5] = {" dc ", " dd ", " wf ", " mg ", " lo ", " lf ", " um ", " uw ", " sl "};
	char flags[8200];
	strcpy(flags, smaps(p, "VmFlags"));
	for (char *c = flags; *c; c++)
		*c = *c == '\n' ? ' ' : *c;
	for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
		note(strstr(flags, letters[i]) != NULL);
}

/* Whether a child finds the memory mapped, and how it ends reading it. */
static inline void note_child(char *p)
{
	pid_t pid = forked();
	if (pid == 0) {
		unsigned char there;
		if (mincore(p, PAGE, &there) != 0)
			_exit(42);
		_exit(*(volatile char *)p);
	}
	note(wait_for(pid));
}

/* In pieces after a seal: in the middle it isn't dense enough to be sealed. */
static inline char *sparse_in_the_middle(void)
{
	char *p = map_alone(12 * MB, RW, MAP_PRIVATE);
	CHECK(p != NULL && madvise(p, 12 * MB, MADV_NOHUGEPAGE) == 0);
	fill(p, 4 * MB, 1);
	fill(p + 8 * MB, 4 * MB, 2);
	return p;
}

static inline void compare(void (*with)(char *), char *sealed, const char *when)
{
	char *plain = map_alone(LEN, RW, MAP_PRIVATE);
	long plainly[256];
	fill(plain, LEN, 1);
	notes = 0;
	with(plain);
	int count = notes;
	memcpy(plainly, noted, sizeof noted);
	CHECK(sealed_bytes(plain, LEN) == 0 && all_sealed(sealed, LEN));
	notes = 0;
	with(sealed);
	CHECK(notes == count);
	for (int i = 0; i < count; i++)
		if (noted[i] != plainly[i]) {
			fprintf(stderr, "%s, note %d of %d: plain %ld, sealed %ld\n", when, i, count, plainly[i], noted[i]);
			_exit(1);
		}
}

/* `with` gets LEN bytes with pattern 1. */
static inline int same_as_plain(void (*with)(char *))
{
	int end[2];
	pthread_t other;
	char *first = memory(LEN, 1), *second = memory(LEN, 1), *third = memory(LEN, 1);
	seal();
	IN_CLONE
		compare(with, first, "in a clone");
	compare(with, second, "with one thread");
	/* What it did may have made all memory anonymous, for good. */
	if (sealed_bytes(third, LEN) != LEN)
		CHECK(call_seal() == 0);
	make_other(&other, end);
	compare(with, third, "with two threads");
	end_other(other, end);
	return 0;
}
