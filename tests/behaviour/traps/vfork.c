/* vfork and exec after a seal. vfork(2). */
#include "../behaviour.h"

int main(void)
{
    char *p = memory(4 * MB, 1);
    seal();
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 7", NULL);
        _exit(1);
    }
    CHECK(pid > 0 && wait_for(pid) == 7);
    pid = syscall(SYS_vfork);
    if (pid == 0)
        _exit(8);
    CHECK(pid > 0 && wait_for(pid) == 8 && intact(p, 4 * MB, 1));
    return 0;
}
