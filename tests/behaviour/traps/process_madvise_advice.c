/* process_madvise on oneself with whatever advice means something else on sealed memory: the same as madvise, discards that come
   later included. process_madvise(2); allowed on oneself since Linux 6.13. */
#include "../beside_plain.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

/* In a clone it is the clone's own. */
static int self(void)
{
	static int fd, of;
	if (of != getpid())
		CHECK((fd = syscall(SYS_pidfd_open, of = getpid(), 0)) >= 0);
	return fd;
}

static long advise(char *p, int advice)
{
	struct iovec parts[] = {{p, PAGE}, {p + 2 * PAGE, 0}, {p + PAGE, PAGE}};
	return syscall(SYS_process_madvise, self(), parts, 3, advice, 0);
}

static void with(char *p)
{
	static const int properties[] = {MADV_DONTFORK, MADV_DONTDUMP, MADV_WIPEONFORK, MADV_GUARD_INSTALL, MADV_NOHUGEPAGE};
	char *at = p;
	for (size_t i = 0; i < sizeof properties / sizeof *properties; i++, at += 16 * PAGE) {
		NOTE_CALL(advise(at, properties[i]));
		note(*(uint64_t *)(at + 2 * PAGE) == pattern((at + 2 * PAGE - p) / 8, 1));
		note_child(at);
		note_flags(at);
		note_discard(at + 2 * PAGE, PAGE, MADV_DONTNEED);
		NOTE_CALL(madvise(at, 2 * PAGE, MADV_DONTNEED));
		note_child(at);
		note_flags(at);
	}
	NOTE_CALL(advise(at, MADV_REMOVE));
	NOTE_CALL(advise(at, MADV_PAGEOUT));
	NOTE_CALL(advise(at, 12345));
	note(*(uint64_t *)at == pattern((at - p) / 8, 1));
	/* Freed pages hold what they held, or zeros. */
	NOTE_CALL(advise(at, MADV_FREE));
	note(zeros(at, PAGE) || *(uint64_t *)at == pattern((at - p) / 8, 1));
	NOTE_CALL(advise(at, MADV_DONTNEED));
	note(zeros(at, 2 * PAGE) && *(uint64_t *)(at + 2 * PAGE) == pattern((at + 2 * PAGE - p) / 8, 1));
	/* Up to what can't be advised on. */
	struct iovec parts[] = {{at + 4 * PAGE, PAGE}, {(char *)PAGE, PAGE}, {at + 5 * PAGE, PAGE}};
	NOTE_CALL(syscall(SYS_process_madvise, self(), parts, 3, MADV_DONTNEED, 0));
	note(zeros(at + 4 * PAGE, PAGE));
	NOTE_CALL(syscall(SYS_process_madvise, self(), parts + 1, 2, MADV_DONTNEED, 0));
	note(*(uint64_t *)(at + 5 * PAGE) == pattern((at + 5 * PAGE - p) / 8, 1));
	NOTE_CALL(syscall(SYS_process_madvise, self(), parts, 3, MADV_DONTNEED, 1));
	NOTE_CALL(syscall(SYS_process_madvise, self(), parts, 2000, MADV_DONTNEED, 0));
	NOTE_CALL(syscall(SYS_process_madvise, self(), PAGE, 3, MADV_DONTNEED, 0));
	NOTE_CALL(syscall(SYS_process_madvise, -1, parts, 3, MADV_DONTNEED, 0));
	/* What can't be a vector at all. */
	struct iovec none[] = {{at + 5 * PAGE, PAGE}, {at + 6 * PAGE, SIZE_MAX}};
	CHECK(syscall(SYS_process_madvise, self(), none, 2, MADV_DONTNEED, 0) == -1 && errno == EINVAL);
	none[1] = (struct iovec){(char *)0xffff888000000000, PAGE};
	CHECK(syscall(SYS_process_madvise, self(), none, 2, MADV_DONTNEED, 0) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_process_madvise, self(), none + 1, 1, MADV_DONTNEED, 0) == -1 && errno == EFAULT);
	note(*(uint64_t *)(at + 5 * PAGE) == pattern((at + 5 * PAGE - p) / 8, 1));
}

int main(void)
{
	char *probe = memory(PAGE, 1);
	struct iovec part = {probe, PAGE};
	if (syscall(SYS_process_madvise, self(), &part, 1, MADV_FREE, 0) < 0)
		SKIP("this kernel allows no process_madvise(MADV_FREE) on oneself (Linux 6.13)");
	return same_as_plain(with);
}
