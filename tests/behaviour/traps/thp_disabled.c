/* PR_SET_THP_DISABLE, which Redis sets for itself: the seal still makes 2 MB pages, and the setting is as before. prctl(2). */

/* Kilobytes of the 8 MB at p that a clone maps with 2 MB pages once it has read them. */
static long huge_kb(const char *p)
{
	int channel[2];
	long kb = -1;
	CHECK(pipe(channel) == 0);
	IN_CLONE {
		CHECK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0 && intact(p, 8 * MB, 1));
		kb = atol(smaps(p, "ShmemPmdMapped")) + atol(smaps(p, "FilePmdMapped"));
		CHECK(write(channel[1], &kb, sizeof kb) == sizeof kb);
	}
	CHECK(read(channel[0], &kb, sizeof kb) == sizeof kb);
	close(channel[0]);
	close(channel[1]);
	return kb;
}

int main(void)
{
	char *ordinary = memory(8 * MB, 1), *p;
	seal();
	if (huge_kb(ordinary) == 0)
		SKIP("this kernel gives the memfd no 2 MB pages just now");
	CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	p = memory(8 * MB, 1);
	seal();
	CHECK(all_sealed(p, 8 * MB));
	CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	CHECK(huge_kb(p) > 0);
}
