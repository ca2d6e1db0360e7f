/* A sealed process that leaves /proc or all descriptors behind, by chroot, another mount, landlock, limits: memory that was never
   sealed works as ever, sealed memory is discarded, grows and is inherited, and so does memory that lies in pieces since an unseal.
   chroot(2), mount(2), landlock(7), setrlimit(2). */
#include "../beside_plain.h"
#include <linux/landlock.h>
#include <sys/mount.h>

static int by_chroot(void)
{
	return leave_proc();
}

static int by_mount(void)
{
	if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return 0;
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("none", "/proc", "tmpfs", 0, NULL) == 0;
}

static int by_landlock(void)
{
	struct landlock_ruleset_attr reads = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
	int rules = (int)syscall(SYS_landlock_create_ruleset, &reads, sizeof reads, 0);
	if (rules < 0)
		return 0;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0);
	return close(rules) == 0;
}

static int by_descriptors(void)
{
	struct rlimit none = {0, 0};
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	return geteuid() != 0 || setuid(65534) == 0;
}

static int (*const ways[])(void) = {by_chroot, by_mount, by_landlock, by_descriptors};

static void works(char *p, char *in_pieces, char *fresh)
{
	note_discard(p, 64 * 1024, MADV_DONTNEED);
	char *grown = mremap(in_pieces, 12 * MB, 24 * MB, MREMAP_MAYMOVE);
	note(grown != MAP_FAILED);
	CHECK(grown == MAP_FAILED || (intact(grown, 4 * MB, 1) && intact(grown + 8 * MB, 4 * MB, 2)));
	CHECK(grown == MAP_FAILED || (zeros(grown + 4 * MB, 4 * MB) && zeros(grown + 12 * MB, 12 * MB)));
	NOTE_CALL(madvise(fresh + MB, PAGE, MADV_DONTFORK));
	NOTE_CALL(mlock(fresh + 2 * MB, PAGE));
	NOTE_CALL(madvise(fresh + 3 * MB, PAGE, MADV_WIPEONFORK));
	note(mremap(fresh + 2 * MB + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED);
	note_child(fresh + MB);
	note_child(fresh + 3 * MB);
	note_child(p + MB);
}

/* What was done before. */
enum before { NOTHING, SEALED, UNSEALED };

static int run(int way, enum before before, long into[256])
{
	int ends[2];
	long told[257] = {-1};
	CHECK(pipe(ends) == 0);
	pid_t pid = forked();
	if (pid == 0) {
		char *p = memory(LEN, 1), *in_pieces = sparse_in_the_middle();
		if (before != NOTHING) {
			seal();
			CHECK(all_sealed(p, LEN) && sealed_bytes(in_pieces, 12 * MB) == 8 * MB);
		}
		if (before == UNSEALED)
			unseal();
		char *fresh = memory(LEN, 3);
		if (!ways[way]())
			_exit(77);
		works(p, in_pieces, fresh);
		told[0] = notes;
		memcpy(told + 1, noted, sizeof noted);
		CHECK(write(ends[1], told, sizeof told) == sizeof told);
		_exit(0);
	}
	int ended = wait_for(pid);
	CHECK(ended == 0 || ended == 77);
	if (ended == 0)
		CHECK(read(ends[0], told, sizeof told) == sizeof told);
	close(ends[0]);
	close(ends[1]);
	memcpy(into, told + 1, sizeof noted);
	return (int)told[0];
}

int main(void)
{
	int shown = 0;
	for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++) {
		long plain[256], after[256];
		int count = run(way, NOTHING, plain);
		shown += count > 0;
		for (enum before before = SEALED; before <= UNSEALED; before++) {
			CHECK(run(way, before, after) == count);
			for (int i = 0; i < count; i++)
				if (plain[i] != after[i]) {
					fprintf(stderr, "way %d, %s, note %d of %d: plain %ld, here %ld\n", way, before == SEALED ? "sealed" : "unsealed",
					        i, count, plain[i], after[i]);
					return 1;
				}
		}
	}
	CHECK(shown > 0);
}
