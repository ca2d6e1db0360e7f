/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * flashfork: clone a warmed process by copy-on-write at a cost that does not grow with its memory.
 * Made from crates/flashfork/src/c_api*.rs; docs/C_API.md has an example.
 */

#ifndef FLASHFORK_H
#define FLASHFORK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * Sealed memory is on 2 MB pages where possible, on 4 KB pages elsewhere.
 */
#define FLASHFORK_PAGES_AUTO 0

/**
 * 4 KB pages only: slower to seal, slower to read in a clone.
 */
#define FLASHFORK_PAGES_SMALL 1

/**
 * A process with other threads is refused.
 */
#define FLASHFORK_THREADS_REFUSE 0

/**
 * Other threads are stopped for each step of 2 MB.
 */
#define FLASHFORK_THREADS_STOP 1

/**
 * Ready where an interpreter has run what it was given, before main in other programs.
 */
#define FLASHFORK_READY_AUTO 0

/**
 * Ready before main.
 */
#define FLASHFORK_READY_MAIN 1

/**
 * Ready where the program calls `flashfork_ready`.
 */
#define FLASHFORK_READY_CALL 2

/**
 * Of a template: CPython that waits for what a clone shall run.
 */
#define FLASHFORK_READY_PYTHON 3

/**
 * Of a template: Perl.
 */
#define FLASHFORK_READY_PERL 4

/**
 * Of a template: Ruby.
 */
#define FLASHFORK_READY_RUBY 5

/**
 * With all threads, when it had been idle for a while.
 */
#define FLASHFORK_READY_IDLE 6

/**
 * With all threads, when it listened on a socket.
 */
#define FLASHFORK_READY_LISTEN 7

/**
 * With all threads, when it had printed a line.
 */
#define FLASHFORK_READY_LINE 8

/**
 * Node with all threads, when what its command line names had run.
 */
#define FLASHFORK_READY_NODE 10

/**
 * The template waits for callers.
 */
#define FLASHFORK_TEMPLATE_WAITING 0

/**
 * It is stopped, by a signal or a debugger.
 */
#define FLASHFORK_TEMPLATE_STOPPED 1

/**
 * It has not answered for ten seconds.
 */
#define FLASHFORK_TEMPLATE_SILENT 2

/**
 * It is of another version of flashfork.
 */
#define FLASHFORK_TEMPLATE_STRANGE 3

/**
 * A clone of a template; made by `flashfork_template_clone`.
 */
struct flashfork_clone;

/**
 * A region; made by `flashfork_region_create`.
 */
struct flashfork_region;

/**
 * What became of one mapping of the process.
 */
struct flashfork_vma_report {
    /**
     * First address.
     */
    const void *start;
    /**
     * Address behind the last.
     */
    const void *end;
    /**
     * The kernel's name for it, cut at 32 bytes; empty for plain anonymous memory.
     */
    const char *name;
    /**
     * Bytes sealed by this call.
     */
    uint64_t sealed_bytes;
    /**
     * Bytes sealed before, and still.
     */
    uint64_t kept_bytes;
    /**
     * Short name of why it, or the rest of it, was not sealed; NULL when there is no such reason.
     */
    const char *reason;
    /**
     * The reason in words; NULL with it.
     */
    const char *explanation;
};

/**
 * How to seal. All zeros are the defaults: begin with `struct flashfork_seal_options o = {0};`.
 */
struct flashfork_seal_options {
    /**
     * FLASHFORK_PAGES_AUTO or FLASHFORK_PAGES_SMALL.
     */
    uint32_t pages;
    /**
     * Not 0: the caller vouches that no runtime in the process (Go) relies on MADV_DONTNEED giving zeros, and asks for
     * it by system calls of its own.
     */
    uint32_t trust_allocator;
    /**
     * Called once for every mapping, in order of address, when the seal is over. The report and its texts are valid
     * during the call only. May be NULL.
     */
    void (*each_vma)(const struct flashfork_vma_report *report, void *data);
    /**
     * Passed to `each_vma`.
     */
    void *each_vma_data;
    /**
     * FLASHFORK_THREADS_REFUSE or FLASHFORK_THREADS_STOP.
     */
    uint64_t threads;
    /**
     * Paths of files that the caller answers for: code in them makes system calls of its own, but none that discards,
     * moves or grows sealed memory (docs/SYSTEM_CALLS.md). Ends with NULL. May be NULL.
     */
    const char *const *trust;
    /**
     * Must be 0.
     */
    uint64_t reserved[2];
};

/**
 * What a seal did.
 */
struct flashfork_seal_report {
    /**
     * Bytes sealed by this call.
     */
    uint64_t sealed_bytes;
    /**
     * Of these, bytes on 2 MB pages.
     */
    uint64_t huge_bytes;
    /**
     * Of these, bytes that held no page before.
     */
    uint64_t filled_bytes;
    /**
     * Nanoseconds the call took; signals waited meanwhile.
     */
    uint64_t elapsed_ns;
    /**
     * Most extra memory held at any moment, in bytes.
     */
    uint64_t peak_extra_bytes;
    /**
     * Number of this seal in the process, from 1; 0 when there was nothing to seal.
     */
    uint32_t generation;
    /**
     * 1 when the files that the memory lies in refuse every later write.
     */
    uint32_t write_sealed;
    /**
     * How often other threads were stopped.
     */
    uint64_t pauses;
    /**
     * Nanoseconds of the longest of these pauses.
     */
    uint64_t longest_pause_ns;
    /**
     * 0.
     */
    uint64_t reserved[2];
};

/**
 * Forks counted in this process, and in those it comes from.
 */
struct flashfork_stats {
    /**
     * Forks of a process that had sealed nothing.
     */
    uint64_t plain_forks;
    /**
     * Nanoseconds these took in the parent, summed.
     */
    uint64_t plain_fork_ns;
    /**
     * Forks of a process that had sealed memory.
     */
    uint64_t sealed_forks;
    /**
     * Nanoseconds these took in the parent, summed.
     */
    uint64_t sealed_fork_ns;
    /**
     * Forks on demand (`flashfork_on_demand`), of whatever process; not among the others.
     */
    uint64_t on_demand_forks;
    /**
     * Nanoseconds these took in the parent, summed.
     */
    uint64_t on_demand_fork_ns;
};

/**
 * Bytes of memory.
 */
struct flashfork_range {
    /**
     * First address.
     */
    const void *start;
    /**
     * Address behind the last.
     */
    const void *end;
};

/**
 * What a snapshot covers beside memory, mappings, registers and signal mask. All zeros are the defaults.
 */
struct flashfork_snapshot_options {
    /**
     * Descriptors whose file offset goes back, at most 64; NULL when there are none.
     */
    const int *descriptors;
    /**
     * How many.
     */
    size_t descriptor_count;
    /**
     * Bytes that stay as they are at a restore, at most 60 ranges; NULL when there are none.
     */
    const struct flashfork_range *keep;
    /**
     * How many.
     */
    size_t keep_count;
    /**
     * Not 0: a restore closes descriptors that weren't open when the snapshot was taken.
     */
    uint32_t close_new;
    /**
     * Not 0: the caller vouches that no runtime in the process (Go) relies on MADV_DONTNEED giving zeros, and asks for
     * it by system calls of its own.
     */
    uint32_t trust_allocator;
    /**
     * Must be 0.
     */
    uint64_t reserved[4];
};

/**
 * How to warm a program. All zeros are the defaults, but `shim` must be given.
 */
struct flashfork_warm_options {
    /**
     * Path of libflashfork_preload.so, of this library's version; `pkg-config --variable=shim flashfork` has it.
     */
    const char *shim;
    /**
     * Strings NAME=VALUE, the environment of the program while it is warmed; ends with NULL. PATH is where the program
     * is looked for; the shim comes before what LD_PRELOAD names. NULL: none.
     */
    const char *const *envp;
    /**
     * FLASHFORK_READY_AUTO, FLASHFORK_READY_MAIN or FLASHFORK_READY_CALL.
     */
    uint64_t ready;
    /**
     * The template goes after so many clones; 0: it stays until it is removed.
     */
    uint64_t max_clones;
    /**
     * Two descriptors, for standard output and standard error while it is warmed. NULL: /dev/null.
     */
    const int *output;
    /**
     * A descriptor; when it can be read, the warm-up is given up. NULL: none.
     */
    const int *cancel;
    /**
     * The warm-up is given up after so many milliseconds; 0: it may take all the time it needs.
     */
    uint64_t timeout_ms;
    /**
     * If not 0, whoever asks for a clone finds the template made anew when its program has changed
     * (`flashfork_template_renew`), or has other values of variables that are read at a program's start.
     */
    uint64_t watch;
    /**
     * Must be 0.
     */
    uint64_t reserved[1];
};

/**
 * What a template knows about itself. What only a template knows is 0 for one that doesn't answer.
 */
struct flashfork_template_facts {
    /**
     * Its process; 0 where it can't be seen from here.
     */
    uint64_t pid;
    /**
     * FLASHFORK_TEMPLATE_WAITING, or why it doesn't answer.
     */
    uint32_t state;
    /**
     * One of FLASHFORK_READY_MAIN and those behind it: where it waits.
     */
    uint32_t ready;
    /**
     * Bytes of its memory that are sealed; with 0 its clones are plain forks.
     */
    uint64_t sealed_bytes;
    /**
     * Clones made so far.
     */
    uint64_t clones_made;
    /**
     * Clones that run now.
     */
    uint64_t clones_running;
    /**
     * Most clones it makes; 0: any number.
     */
    uint64_t max_clones;
    /**
     * What the program was made of and has changed since: if it is not 0 there are no clones (ESTALE).
     */
    uint64_t changed_files;
    /**
     * Such files of which a change would not be noticed.
     */
    uint64_t unwatched_files;
    /**
     * 0.
     */
    uint64_t reserved[2];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Seals the process's private anonymous memory where that is safe and pays, so that forks don't copy its page tables.
 * Called again it seals what was written since.
 *
 * `options` may be NULL (defaults), `report` may be NULL. The process must have one thread, or `options` must allow
 * the others to be stopped. Signals wait until the call is over.
 *
 * Returns 0, or -1 with `errno` and a text from `flashfork_last_error`; memory is then as it was, and forks are
 * correct: EBUSY (the process holds something that forbids sealing: other threads, an io_uring, AIO, KVM, a
 * userfaultfd …; seal without it), EOPNOTSUPP (a runtime relies on MADV_DONTNEED giving zeros), ENOMEM (memory or
 * mappings are short), EFBIG (a hard RLIMIT_FSIZE), EALREADY (called within itself), EINVAL (wrong options), or what a
 * system call gave.
 */
int flashfork_seal(const struct flashfork_seal_options *options, struct flashfork_seal_report *report);

/**
 * Makes all sealed memory anonymous again; needs as much free memory. `bytes` receives how many bytes that were; it
 * may be NULL.
 *
 * Returns 0, or -1 with `errno` as `flashfork_seal`; what was not done is then still sealed, and every byte as it was.
 */
int flashfork_unseal(uint64_t *bytes);

/**
 * fork(2), counted in `flashfork_stats`. It seals nothing: call `flashfork_seal` when the program is warm.
 *
 * Returns 0 in the clone and its process id in the parent; -1 with `errno` as fork(2).
 */
pid_t flashfork_fork(void);

/**
 * The program is warm: under `flashfork warm --ready call` it becomes a template here, and this returns once in each
 * clone.
 *
 * Returns 1 in a clone: the arguments of `flashfork clone` are behind those of `*argc` and `*argv`, which may both be
 * NULL; environment, working directory and standard streams are those of its caller. Returns 0, at once, wherever
 * there is nothing to wait for: the program was started without `flashfork warm` or with another ready point, or this
 * is a clone already. A process that has other threads then, or something else that forbids clones, ends, and
 * `flashfork warm` says why.
 */
int flashfork_ready(int *argc, char ***argv);

/**
 * Has a function run in each clone that `flashfork clone` makes of this program, before anything else of the program
 * runs there, called with `with`: for what must not be the same in all of them, such as a random number generator's
 * state. It returns 0; with anything else the clone is ended. Functions run in the order in which they were given, and
 * are never taken back: their library must stay loaded.
 *
 * In a program with threads (`flashfork warm --threads`) they run in a thread of their own, with all signals blocked,
 * while all other threads wait where they were stopped: a lock that one of these holds stays held, that of malloc(3)
 * too, perhaps. When the template is made they run once in a clone that does nothing else, and has the template's
 * environment; if they don't come to an end there, `flashfork warm` says so. In a template with one thread they run in
 * that. `flashfork_fork` doesn't call them.
 *
 * Returns 0, also where the program was started without `flashfork warm` and nothing will ever be called, or -1 with
 * `errno`: EINVAL (`run` is NULL), ENOMEM (there are 64 already), EAGAIN (no thread can be started).
 */
int flashfork_on_clone(int (*run)(void *with), void *with);

/**
 * Not 0: every later fork of this process shares page tables with its clone until one of them faults there, libc's
 * fork included; clones inherit that, exec ends it. 0: forks are plain again. Needs no seal, and a process may have
 * threads.
 *
 * Returns 0, or -1 with `errno`; forks are plain and correct then: ENOSYS (this kernel has no on-demand fork), EPERM
 * (the sysctl vm.on_demand_fork is 0), or what prctl(2) gave.
 */
int flashfork_on_demand(int on);

/**
 * Keeps the pages of `len` bytes at `addr` out of every seal; what of them is sealed becomes anonymous again. For
 * secrets, and for memory that is written all the time. At most 64 ranges (ENOSPC).
 *
 * Returns 0, or -1 with `errno` as `flashfork_unseal`.
 */
int flashfork_exclude(const void *addr, size_t len);

/**
 * How many forks `flashfork_fork` made and how long they took. Returns 0; -1 with EINVAL for NULL.
 */
int flashfork_stats(struct flashfork_stats *stats);

/**
 * What, why and what to do about the last call of this thread that returned -1, in one line; "" when none has. Valid
 * until the thread's next call that fails.
 */
const char *flashfork_last_error(void);

/**
 * The version of the library, for example "0.1.0".
 */
const char *flashfork_version(void);

/**
 * Makes a region: memory that goes back to how it was, as often as wanted, in microseconds. `len` is rounded up to 2
 * MB; it begins with zeros, at a multiple of 2 MB. FLASHFORK_PAGES_AUTO takes all its memory at once,
 * FLASHFORK_PAGES_SMALL as it is touched.
 *
 * Sound only when all of a thing's state lies inside: a rolled-back heap whose allocator keeps its lists elsewhere is
 * corrupt. Until it is sealed, clones don't have it; once sealed, each clone has a copy of its own.
 *
 * Returns NULL with `errno` and a text from `flashfork_last_error`: EINVAL (len or pages), or what a system call gave.
 */
struct flashfork_region *flashfork_region_create(size_t len, uint32_t pages);

/**
 * The address of a region's first byte.
 */
void *flashfork_region_address(const struct flashfork_region *region);

/**
 * A region's length in bytes: that asked for, rounded up to 2 MB.
 */
size_t flashfork_region_length(const struct flashfork_region *region);

/**
 * Makes what a region holds now the state to go back to; copies nothing. Nobody else may use it meanwhile.
 *
 * Returns 0, or -1 with `errno`, the region unsealed and its bytes as they were: EALREADY (sealed before), EBUSY (a
 * device or unfinished I/O writes into it), EPERM (a clone doesn't have it), or what a system call gave.
 */
int flashfork_region_seal(struct flashfork_region *region);

/**
 * Undoes every write to a region since its seal, in this process. Nobody else may use it meanwhile.
 *
 * Returns 0, or -1 with `errno`: ENOENT (not sealed yet), EFAULT (a part of the region was unmapped; the rest is
 * rolled back).
 */
int flashfork_region_rollback(struct flashfork_region *region);

/**
 * The same for `len` bytes from byte `offset` of the region on, both multiples of 4096. For who knows where writes
 * have gone: nothing else is looked at.
 *
 * Returns 0, or -1 with `errno`: ENOENT (not sealed yet), EINVAL (not whole pages, or beyond the region's end), EFAULT
 * (a page was unmapped).
 */
int flashfork_region_rollback_range(struct flashfork_region *region, size_t offset, size_t len);

/**
 * Gives a region's memory back; nothing may use it afterwards. NULL is allowed.
 */
void flashfork_region_free(struct flashfork_region *region);

/**
 * Takes a snapshot of the process, in the place of the one there may be, and returns 0. `flashfork_restore(n)` then
 * makes this call return n, as often as wanted, with all private memory, mappings, registers and the signal mask as
 * they were. The process must have one thread.
 *
 * `options` may be NULL. What does not go back: shared memory, descriptors and other kernel state (but see the
 * options), what others saw.
 *
 * Returns -1 with `errno` and a text from `flashfork_last_error`, nothing taken: EBUSY (the process holds what can't
 * be put back: other threads, an io_uring, hugetlb pages …), ENOMEM, EFBIG, ENOSPC (too many ranges, descriptors,
 * mappings), EBADF (a named descriptor), EALREADY (called within itself), EINVAL (wrong options), or what a system
 * call gave.
 */
int flashfork_snapshot(const struct flashfork_snapshot_options *options);

/**
 * Goes back to the snapshot: `flashfork_snapshot` returns `value`, which is at least 1. Does not return, unless it is
 * refused; nothing has changed then. What memory says about things outside of it (descriptors, children, timers) must
 * still be true, or not be relied on.
 *
 * Returns -1 with `errno`: EINVAL (value), ENOENT (no snapshot), EPERM (a clone of the process that took it, or
 * another thread), EBUSY (threads, an io_uring), EFAULT (a file's or other mapping that can't be made again is gone),
 * EBADF (a descriptor), EALREADY, or what a system call gave. A step that fails after the first change is tried for a
 * second; then the process is killed.
 */
int flashfork_restore(int value);

/**
 * Forgets the snapshot, if there is one, and gives its memory back; what was sealed for it stays sealed. Returns 0, or
 * -1 with EALREADY.
 */
int flashfork_snapshot_discard(void);

/**
 * Starts a program in the background and keeps it, warm, as a template: what `flashfork warm` does. Waits until it is
 * ready.
 *
 * `runtime` is the value of XDG_RUNTIME_DIR, in which the names of templates are kept; NULL or "": they are in
 * /tmp/flashfork-UID. `name` is what the template is called, `argv` the program and its arguments, which end with
 * NULL. `facts` may be NULL. The template outlives this process, of which it is a child: once it has ended it is
 * waited for by the next call that warms or removes one.
 *
 * Returns 0, or -1 with `errno`, and then nothing is left running: EEXIST (the name is taken), ENOENT (no such
 * program, or no shim), ENOEXEC (it can't be a template: statically linked, with threads …), ECHILD (it ended before
 * it was ready), ETIMEDOUT, ECANCELED, EACCES (the directory is not the user's alone), EINVAL (a wrong name or
 * option), or what a system call gave.
 */
int flashfork_template_warm(const char *runtime,
                            const char *name,
                            const char *const *argv,
                            const struct flashfork_warm_options *options,
                            struct flashfork_template_facts *facts);

/**
 * What a template knows about itself, `runtime` and `name` as of `flashfork_template_warm`.
 *
 * Returns 0, or -1 with `errno`: ENOENT (there is none), ESRCH (it has just ended), EAGAIN (it is stopped), ETIMEDOUT
 * (it doesn't answer), EPROTO (it is of another version), EACCES, EINVAL, or what a system call gave.
 */
int flashfork_template_info(const char *runtime, const char *name, struct flashfork_template_facts *facts);

/**
 * Warms a template anew if its program has changed: by the command line, directory, environment and options that it
 * was warmed by. If nothing has changed nothing is done. Of several callers one warms it. The new one comes in its
 * place; clones of the old one run on. Of `options`, which may be NULL, `output`, `cancel` and `timeout_ms` count,
 * and the others must be 0. `runtime` and `name` as of `flashfork_template_warm`.
 *
 * Returns 0, or -1 with `errno` as `flashfork_template_warm` and `flashfork_template_info`; then the old one is as it
 * was, but for one with threads that listens on ports of TCP: it has let go of them, and makes no clones any more.
 */
int flashfork_template_renew(const char *runtime, const char *name, const struct flashfork_warm_options *options);

/**
 * Calls `each` for every template, in order of their names, those included that don't answer. The texts and facts are
 * valid during the call only. `runtime` as of `flashfork_template_warm`.
 *
 * Returns 0, or -1 with `errno`: EACCES, EINVAL, or what a system call gave.
 */
int flashfork_template_list(const char *runtime, void (*each)(const char *name,
                                                              const struct flashfork_template_facts *facts,
                                                              void *data), void *data);

/**
 * Removes a template: its name is free afterwards, clones that run go on, and the template ends with the last;
 * `running` receives how many those are, and may be NULL. That there is none is no failure. `runtime` and `name` as of
 * `flashfork_template_warm`.
 *
 * Returns 0, or -1 with `errno` as `flashfork_template_info`.
 */
int flashfork_template_remove(const char *runtime, const char *name, uint64_t *running);

/**
 * Runs a clone of a template: what `flashfork clone` does. `runtime` and `name` as of `flashfork_template_warm`.
 *
 * `argv` are its arguments, behind those that the template was started with, and `envp` the strings of its
 * environment; both end with NULL, and are empty if NULL. It runs in `directory`; NULL: that of this process. `fds`
 * are the descriptors that become its standard input, output and error, -1 for one that it is started without; NULL:
 * those of this process. It ignores and blocks no signal; umask, limits, nice value, CPUs and what else docs/WARM.md
 * lists are those of the calling thread.
 *
 * Returns the clone, whose process runs; NULL with `errno` and a text from `flashfork_last_error`: ENOENT (there is no
 * such template, or no such directory), ESTALE (its program would be another one now: `flashfork_template_renew`),
 * ESRCH (it has just ended), EAGAIN (it is stopped; 4096 clones run), EMFILE (it has no descriptor left), ETIMEDOUT
 * (it doesn't answer), EPROTO (it is of another version), EACCES, EINVAL, or what a system call gave.
 */
struct flashfork_clone *flashfork_template_clone(const char *runtime,
                                                 const char *name,
                                                 const char *const *argv,
                                                 const char *const *envp,
                                                 const char *directory,
                                                 const int *fds);

/**
 * The clone's process, which leads a process group of its own. It is a child of its template.
 */
pid_t flashfork_clone_pid(const struct flashfork_clone *clone);

/**
 * A descriptor that can be read from the clone's end on, for poll(2). It stays the library's.
 */
int flashfork_clone_descriptor(const struct flashfork_clone *clone);

/**
 * Waits for the clone's end, at most `timeout_ms` milliseconds if that isn't negative; 0 only looks. `status` receives
 * its status as of wait(2), and may be NULL. It stays known. Several threads may wait, and send signals meanwhile.
 *
 * Returns 0, or -1 with `errno`: ETIMEDOUT (it runs), EINTR (a signal was handled in this thread; call again), ESRCH
 * (its template has ended, and it with that; its status is nobody's), or what a system call gave.
 */
int flashfork_clone_wait(const struct flashfork_clone *clone, int64_t timeout_ms, int *status);

/**
 * Has the template send the clone a signal; if `group` is not 0, its whole process group, as a terminal would. Nobody
 * else can get it: one for a clone that has ended is lost, and no failure.
 *
 * Returns 0, or -1 with `errno`: EINVAL (no such signal), EAGAIN (hundreds are on their way).
 */
int flashfork_clone_signal(const struct flashfork_clone *clone, int signal, int group);

/**
 * Lets go of a clone. One that still runs is killed, with its process group; so it is when this process ends. NULL is
 * allowed.
 */
void flashfork_clone_free(struct flashfork_clone *clone);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLASHFORK_H */
