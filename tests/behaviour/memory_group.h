/* A memory cgroup for a part of a program. */
#ifndef MEMORY_GROUP_H
#define MEMORY_GROUP_H

static char group[512];

/* Makes a memory cgroup below a directory, with the given limit. */
static int make_group(const char *parent, int parent_len, const char *limit_file, size_t limit)
{
	char path[600];
	snprintf(group, sizeof group, "%.*s/flashfork-test-%d", parent_len, parent, getpid());
	if (mkdir(group, 0755) != 0)
		return 0;
	snprintf(path, sizeof path, "%s/%s", group, limit_file);
	FILE *file = fopen(path, "r+e");
	if (file == NULL) {
		rmdir(group);
		return 0;
	}
	fprintf(file, "%zu", limit);
	return fclose(file) == 0;
}

/* Below the one of this process; or, as version 2 allows no children beside processes, next to it. */
static int find_group(size_t limit)
{
	char line[400], own[450];
	int made = 0;
	FILE *file = fopen("/proc/self/cgroup", "re");
	while (file && !made && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		int version1 = strstr(line, ":memory:") != NULL;
		if (!version1 && strncmp(line, "0::", 3) != 0)
			continue;
		const char *mount = version1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
		const char *limit_file = version1 ? "memory.limit_in_bytes" : "memory.max";
		int len = snprintf(own, sizeof own, "%s%s", mount, strrchr(line, ':') + 1);
		made = make_group(own, len, limit_file, limit);
		if (!made && strlen(mount) < strrchr(own, '/') - own + 1ul)
			made = make_group(own, strrchr(own, '/') - own, limit_file, limit);
	}
	return made;
}

/* Runs `live` in a process of its own with so much memory; gives its exit status. */
static int in_group(size_t limit, void (*live)(void))
{
	char path[600];
	if (!find_group(limit))
		SKIP("no memory cgroup can be made here (needs root and the memory controller)");
	pid_t pid = forked();
	if (pid == 0) {
		snprintf(path, sizeof path, "%s/cgroup.procs", group);
		FILE *procs = fopen(path, "we");
		CHECK(procs != NULL && fprintf(procs, "%d", getpid()) > 0 && fclose(procs) == 0);
		live();
		_exit(0);
	}
	int status = wait_for(pid);
	CHECK(rmdir(group) == 0);
	return status;
}

#endif
