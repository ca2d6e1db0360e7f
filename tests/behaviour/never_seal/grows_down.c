/* MAP_GROWSDOWN: a file mapping doesn't grow by faults, and nothing of the engine's lies in the way below. mmap(2). */

/* Below all that has been mapped, where the next mapping would lie. */
static void grows(void)
{
	/* Libraries may lie apart, with room in between, but not for so much. */
	char *room = mmap(NULL, 64 * MB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(room != MAP_FAILED && munmap(room, 64 * MB) == 0);
	char *lowest = mmap(room + 64 * MB - 16 * PAGE, 16 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	CHECK(lowest == room + 64 * MB - 16 * PAGE);
	char *ordinary = memory(4 * MB, 2);
	seal();
	IN_CLONE {
		for (long page = 1; page < 64; page++)
			lowest[-page * (long)PAGE] = 1;
	}
	munmap(ordinary, 4 * MB);
}

int main(void)
{
	grows();
	char *p = map_alone(4 * MB, RW, MAP_PRIVATE | MAP_GROWSDOWN);
	CHECK(p != NULL);
	fill(p, 4 * MB, 1);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0);
	IN_CLONE {
		p[-1] = 1; /* the page below comes into being */
		CHECK(intact(p, 4 * MB, 1));
	}
	p[-1] = 1;
	CHECK(intact(p, 4 * MB, 1));
}
