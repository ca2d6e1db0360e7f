/* A core dump of a clone contains its sealed memory: by default the kernel leaves private file mappings out, and a debugger
   would read zeros. core(5), coredump_filter. */
#include <elf.h>

/* Compares the memory at p with what the core file has for its address. */
static int core_holds(const char *name, const char *p, size_t len)
{
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	size_t found = 0;
	int fd = open(name, O_RDONLY);
	CHECK(fd >= 0 && pread(fd, &header, sizeof header, 0) == sizeof header);
	for (int i = 0; i < header.e_phnum; i++) {
		CHECK(pread(fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment) == sizeof segment);
		for (size_t at = 0; at < len; at += PAGE) {
			size_t into = (size_t)p + at - segment.p_vaddr;
			char page[PAGE];
			if (segment.p_type == PT_LOAD && into < segment.p_filesz)
				found += pread(fd, page, PAGE, segment.p_offset + into) == (ssize_t)PAGE && !memcmp(page, p + at, PAGE);
		}
	}
	return found == len / PAGE;
}

int main(void)
{
	struct rlimit limit;
	char kind[128], place[] = "/tmp/flashfork-core-XXXXXX";
	char *p = memory(4 * MB, 1);
	FILE *pattern = fopen("/proc/sys/kernel/core_pattern", "re");
	CHECK(pattern != NULL && fgets(kind, sizeof kind, pattern));
	if (strpbrk(kind, "|/") || kind[0] == '\n')
		SKIP("core dumps go elsewhere: kernel.core_pattern is %s", kind);
	CHECK(getrlimit(RLIMIT_CORE, &limit) == 0);
	if (limit.rlim_max != RLIM_INFINITY)
		SKIP("the hard RLIMIT_CORE allows no core dump");
	limit.rlim_cur = RLIM_INFINITY;
	CHECK(setrlimit(RLIMIT_CORE, &limit) == 0 && mkdtemp(place) && chdir(place) == 0);
	seal();
	pid_t pid = fork();
	if (pid == 0)
		abort();
	CHECK(wait_for(pid) == 128 + SIGABRT);
	DIR *dir = opendir(".");
	struct dirent *entry;
	int holds = 0;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.') {
			holds += core_holds(entry->d_name, p, 4 * MB);
			unlink(entry->d_name);
		}
	rmdir(place);
	CHECK(holds == 1);
}
