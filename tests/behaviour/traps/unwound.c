/* The stack is unwound out of a system call that waits, in libc's `syscall` and in a call that the engine looks at: a handler's
   backtrace leads to main, and a handler that ends its thread has the thread's cleanup done.
   cflags: -fexceptions */
#include "../behaviour.h"
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

int main(void);

static volatile int seen, cleaned;
static volatile pid_t waiting;

/* Whether the backtrace of a handler leads to main. */
static void look(int signal)
{
    void *frames[64];
    (void)signal;
    int count = backtrace(frames, 64);
    int led = 1;
    for (int i = 0; i < count; i++)
        if ((char *)frames[i] > (char *)main && (char *)frames[i] < (char *)main + 0x1000)
            led = 2;
    seen = led;
}

static void end_thread(int signal)
{
    (void)signal;
    pthread_exit("ended");
}

static void clean(void *unused)
{
    (void)unused;
    cleaned = 1;
}

static void *wait_in_syscall(void *unused)
{
    (void)unused;
    /* Declared as one that throws nothing, and what throws nothing needs no cleanup. */
    long (*volatile throws)(long, ...) = syscall;
    pthread_cleanup_push(clean, NULL);
    waiting = (pid_t)throws(SYS_gettid);
    for (;;)
        throws(SYS_pause);
    pthread_cleanup_pop(0);
    return NULL;
}

static void interrupt_by(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

/* A descriptor whose ioctl waits until somebody makes the call `acct`, which nobody does. */
static int listener(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_acct, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
}

/* Of another process, because nothing is sealed under a filter. */
static int listener_of(pid_t *of)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = *of = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = listener();
        CHECK(write(ends[1], &fd, sizeof fd) == sizeof fd);
        for (;;)
            pause();
    }
    int theirs, other = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK(read(ends[0], &theirs, sizeof theirs) == sizeof theirs && other >= 0);
    return theirs < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, other, theirs, 0);
}

/* Interrupts the caller again and again, or no longer. */
static void interrupt(useconds_t every)
{
    seen = 0;
    ualarm(every, every);
}

/* Waits for a thread to wait in the system call. */
static void until_asleep(pid_t thread)
{
    char path[64], line[256], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    while (state != 'S') {
        FILE *file = fopen(path, "re");
        CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
        state = strrchr(line, ')')[2];
        fclose(file);
        usleep(1000);
    }
}

int main(void)
{
    seal();
    interrupt_by(look);
    interrupt(50 * 1000);
    CHECK(syscall(SYS_pause) == -1 && errno == EINTR);
    CHECK(seen == 2);

    pid_t child;
    interrupt(0);
    int fd = listener_of(&child);
    if (fd >= 0) {
        struct seccomp_notif told = {0};
        interrupt(50 * 1000);
        CHECK(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &told) == -1 && errno == EINTR);
        CHECK(seen == 2);
    }
    interrupt(0);
    kill(child, SIGKILL);
    CHECK(wait_for(child) == 128 + SIGKILL);
    at_last(call_seal);

    pthread_t thread;
    void *said;
    interrupt_by(end_thread);
    CHECK(pthread_create(&thread, NULL, wait_in_syscall, NULL) == 0);
    while (waiting == 0)
        usleep(1000);
    until_asleep(waiting);
    CHECK(pthread_kill(thread, SIGALRM) == 0 && pthread_join(thread, &said) == 0);
    CHECK(strcmp(said, "ended") == 0 && cleaned);
    return 0;
}
