/* Opens a device this machine may not have. What the engine looks at is the descriptor's path, so an ordinary file in its
   place, on a /dev that only this process sees, does as well. Root or user namespaces are needed for that. */
#include <sys/mount.h>

static inline void write_to(const char *path, const char *format, unsigned number)
{
	FILE *file = fopen(path, "we");
	CHECK(file != NULL && fprintf(file, format, number) > 0 && fclose(file) == 0);
}

/* A mount namespace of this process's own; as an ordinary user, who is root in a user namespace then. */
static inline int own_mounts(void)
{
	unsigned uid = geteuid(), gid = getegid();
	if (unshare(CLONE_NEWNS) == 0)
		return 1;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return 0;
	write_to("/proc/self/setgroups", "deny", 0);
	write_to("/proc/self/uid_map", "0 %u 1", uid);
	write_to("/proc/self/gid_map", "0 %u 1", gid);
	return 1;
}

/* The whole program: refused while any one of the devices is open, sealed once it is closed. `paths` ends with NULL. */
static inline int refused_while_open(const char *const *paths)
{
	if (!own_mounts())
		SKIP("no mount namespace to put %s in: needs root or user namespaces", *paths);
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	CHECK(mount("tmpfs", "/dev", "tmpfs", 0, NULL) == 0);
	for (; *paths; paths++) {
		char directory[64];
		snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(*paths, '/') - *paths), *paths);
		CHECK(mkdir(directory, 0755) == 0 || errno == EEXIST);
		int fd = open(*paths, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		CHECK(fd >= 0);
		refused();
		close(fd);
	}
	seal();
	return 0;
}
