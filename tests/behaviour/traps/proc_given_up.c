/* A sealed process that gives up what the engine needs to undo a seal (/proc by chroot, by another mount over it, by landlock;
   descriptors; addresses): its memory is anonymous before, so that whatever works on plain memory goes on working. chroot(2), mount(2),
   landlock(7), setrlimit(2). */
#include "../beside_plain.h"
#include <linux/landlock.h>
#include <linux/userfaultfd.h>
#include <sys/mount.h>
#include <sys/prctl.h>

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

static int by_addresses(void)
{
    struct rlimit much = {64ul << 40, 64ul << 40};
    return setrlimit(RLIMIT_AS, &much) == 0;
}

static int (*const ways[])(void) = {by_chroot, by_mount, by_landlock, by_descriptors, by_addresses};

static void works(char *p, char *in_pieces)
{
    note_discard(p, 64 * 1024, MADV_DONTNEED);
    char *grown = mremap(in_pieces, 12 * MB, 24 * MB, MREMAP_MAYMOVE);
    note(grown != MAP_FAILED);
    CHECK(grown == MAP_FAILED || (intact(grown, 4 * MB, 1) && intact(grown + 8 * MB, 4 * MB, 2)));
    CHECK(grown == MAP_FAILED || (zeros(grown + 4 * MB, 4 * MB) && zeros(grown + 12 * MB, 12 * MB)));
    NOTE_CALL(madvise(p + MB, PAGE, MADV_DONTFORK));
    NOTE_CALL(mlock(p + 2 * MB, PAGE));
    NOTE_CALL(madvise(p + 3 * MB, PAGE, MADV_WIPEONFORK));
    NOTE_CALL(mprotect(p + LEN - PAGE, PAGE, RW | PROT_EXEC));
    note(mremap(p + 2 * MB + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED);
    note_child(p + MB);
    note_child(p + 3 * MB);
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    note(fd >= 0);
}

static int run(int way, int sealed, long into[256])
{
    int ends[2];
    long told[257] = {-1};
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *p = memory(LEN, 1), *in_pieces = sparse_in_the_middle();
        if (sealed) {
            seal();
            CHECK(sealed_bytes(p, LEN) == LEN && sealed_bytes(in_pieces, 12 * MB) == 8 * MB);
        }
        if (!ways[way]())
            _exit(77);
        works(p, in_pieces);
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

/* What a child of vfork gives up, before it starts a program, its parent keeps: nothing happens to the parent's memory. */
static void by_child(void)
{
    char *p = memory(LEN, 1);
    struct rlimit few = {8, 8};
    seal();
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_NOFILE, &few);
        if (geteuid() == 0)
            chroot("/");
        execlp("true", "true", NULL);
        _exit(1);
    }
    CHECK(wait_for(pid) == 0 && sealed_bytes(p, LEN) == LEN && intact(p, LEN, 1));
}

int main(void)
{
    if (in_clone()) {
        by_child();
        _exit(0);
    }
    int shown = 0;
    for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++) {
        long plain[256], after_seal[256];
        int count = run(way, 0, plain), again = run(way, 1, after_seal);
        CHECK(count == again);
        shown += count > 0;
        for (int i = 0; i < count; i++)
            if (plain[i] != after_seal[i]) {
                fprintf(stderr, "way %d, note %d of %d: plain %ld, sealed %ld\n", way, i, count, plain[i], after_seal[i]);
                return 1;
            }
    }
    CHECK(shown > 0);
    return 0;
}
