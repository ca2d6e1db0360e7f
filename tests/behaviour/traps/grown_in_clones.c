/* What clones let grow is theirs and goes with them: nothing of it stays in the parent's memfd, which 12 requests of 10 MB had made 125 MB
   larger. */

/* With malloc's header a mapping of 16 MB, every page of it written: it is sealed whole, and mremap can grow it. */
#define BLOCK (16 * MB - PAGE)

/* Kilobytes in the file behind a piece of sealed memory; 0 where the kernel doesn't say. */
static size_t memfd_kb(const char *p)
{
	char line[8192], name[64];
	size_t start, end, kb = 0;
	struct stat st;
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%zx-%zx", &start, &end) == 2 && start <= (size_t)p && (size_t)p < end) {
			snprintf(name, sizeof name, "/proc/self/map_files/%zx-%zx", start, end);
			if (stat(name, &st) == 0)
				kb = (size_t)st.st_blocks / 2;
		}
	fclose(maps);
	return kb;
}

int main(void)
{
#ifdef M_MMAP_THRESHOLD
	mallopt(M_MMAP_THRESHOLD, MB);
#endif
	char *block = malloc(BLOCK), *mapped = memory(16 * MB, 2);
	fill(block, BLOCK, 1);
	seal();
	/* Its end may lie beside the thread's control block, around which nothing is sealed. */
	CHECK(sealed_bytes(block, BLOCK) >= BLOCK - 18 * PAGE);
	size_t before = memfd_kb(mapped);
	if (before == 0)
		SKIP("/proc/self/map_files can't be used (it takes CAP_CHECKPOINT_RESTORE)");
	for (int request = 0; request < 12; request++)
		IN_CLONE {
			char *grown = realloc(block, 26 * MB);
			CHECK(grown != NULL && intact(grown, BLOCK, 1));
			fill(grown, 26 * MB, 3);
			grown = mremap(mapped, 16 * MB, 26 * MB, MREMAP_MAYMOVE);
			CHECK(grown != MAP_FAILED && intact(grown, 16 * MB, 2) && zeros(grown + 16 * MB, 10 * MB));
			fill(grown, 26 * MB, 4);
		}
	CHECK(memfd_kb(mapped) == before);
	CHECK(intact(block, BLOCK, 1) && intact(mapped, 16 * MB, 2));
}
