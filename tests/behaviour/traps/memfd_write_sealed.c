/* Nobody can write to the pages that clones share, not even root through /proc/PID/map_files: the memfd is sealed.
   fcntl(2), F_ADD_SEALS. */

int main(void)
{
	char path[128], *p = memory(4 * MB, 1);
	seal();
	CHECK(all_sealed(p, 4 * MB));
	size_t start = 0, end = 0;
	char line[8192];
	FILE *maps = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof line, maps) && sscanf(line, "%zx-%zx", &start, &end) == 2)
		if (start <= (size_t)p && (size_t)p < end)
			break;
	snprintf(path, sizeof path, "/proc/self/map_files/%zx-%zx", start, end);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		CHECK(errno == EPERM || errno == EACCES); /* an ordinary user can't even open it */
		return 0;
	}
	int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	CHECK((fcntl(fd, F_GET_SEALS) & wanted) == wanted);
	CHECK(write(fd, "x", 1) == -1 && errno == EPERM);
	CHECK(ftruncate(fd, 0) == -1 && errno == EPERM);
	CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == -1 && errno == EPERM);
	CHECK(intact(p, 4 * MB, 1));
}
