/* A memory cgroup kills the process that goes over its limit instead of failing its copy, so a seal stops in time.
   Documentation/admin-guide/cgroup-v2.rst; research on Linux 6.1: a 200 MB process in a 230 MB cgroup was killed. */
#include "../behaviour.h"
#include <sys/stat.h>

static char group[512];

static void leave_nothing(void)
{
    CHECK(rmdir(group) == 0);
}

/* Makes a memory cgroup (version 1 or 2) below the one of this process with the given limit. */
static int make_group(const char *mount, const char *own, const char *limit_file, size_t limit)
{
    char path[600];
    snprintf(group, sizeof group, "%s%s/flashfork-test-%d", mount, own, getpid());
    if (mkdir(group, 0755) != 0)
        return 0;
    snprintf(path, sizeof path, "%s/%s", group, limit_file);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        rmdir(group);
        return 0;
    }
    fprintf(file, "%zu", limit);
    return fclose(file) == 0;
}

static int find_group(size_t limit)
{
    char line[400];
    int made = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !made && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *path = strrchr(line, ':') + 1;
        if (strcmp(path, "/") == 0)
            path = "";
        if (strstr(line, ":memory:"))
            made = make_group("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", limit);
        else if (strncmp(line, "0::", 3) == 0)
            made = make_group("/sys/fs/cgroup", path, "memory.max", limit);
    }
    return made;
}

int main(void)
{
    char path[600];
    if (!find_group(96 * MB))
        SKIP("no memory cgroup can be made here (needs root and the memory controller)");
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(path, sizeof path, "%s/cgroup.procs", group);
        FILE *procs = fopen(path, "we");
        CHECK(procs != NULL && fprintf(procs, "%d", getpid()) > 0 && fclose(procs) == 0);
        char *p = memory(90 * MB, 1);
        CHECK(call_seal() == 0);
        CHECK(intact(p, 90 * MB, 1));
        CHECK(sealed_bytes(p, 90 * MB) < 90 * MB);
        if (in_clone()) {
            CHECK(intact(p, 90 * MB, 1));
            _exit(0);
        }
        _exit(0);
    }
    int status = wait_for(pid);
    leave_nothing();
    CHECK(status == 0);
    return 0;
}
