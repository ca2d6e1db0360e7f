/* Discards of single pages of sealed memory beside a thread split mappings: in a process that has many, some are left for the program.
   mmap(2), max_map_count in proc_sys_vm(5). */

#define PLAIN 30000
#define HOLES 3000

static int mappings(void)
{
	int count = 0, c;
	FILE *maps = fopen("/proc/thread-self/maps", "re");
	CHECK(maps != NULL);
	while ((c = getc(maps)) != EOF)
		count += c == '\n';
	fclose(maps);
	return count;
}

int main(void)
{
	int end[2];
	pthread_t other;
	if (getenv("FLASHFORK_LAB"))
		SKIP("minutes at an emulator's speed");
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	int most = 0;
	CHECK(file && fscanf(file, "%d", &most) == 1 && fclose(file) == 0);
	if (most > 70000)
		SKIP("this machine allows %d mappings", most);
	char *p = memory(2 * HOLES * PAGE + 2 * MB, 1);
	seal();
	char *split = map_alone(PLAIN * PAGE, PROT_NONE, MAP_PRIVATE);
	for (size_t i = 0; i < PLAIN; i += 2)
		CHECK(mprotect(split + i * PAGE, PAGE, PROT_READ) == 0);
	make_other(&other, end);
	for (size_t i = 0; i < HOLES; i++)
		CHECK(madvise(p + 2 * i * PAGE, PAGE, MADV_DONTNEED) == 0);
	for (size_t i = 0; i < HOLES; i++)
		CHECK(zeros(p + 2 * i * PAGE, PAGE) && *(uint64_t *)(p + (2 * i + 1) * PAGE) == pattern((2 * i + 1) * PAGE / 8, 1));
	/* The first look finds few, the second more than half of all. */
	CHECK(mappings() < PLAIN + 2 * 2200);
	end_other(other, end);
}
