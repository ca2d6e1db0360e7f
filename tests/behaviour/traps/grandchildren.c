/* Clones of clones, four deep: each sees what its parent had at the fork, and nobody sees another's writes. fork(2). */

static char *p;

static void generation(uint64_t depth)
{
	CHECK(intact(p, 4 * MB, depth));
	if (depth == 5)
		return;
	for (int child = 0; child < 2; child++)
		IN_CLONE {
			fill(p, 4 * MB, depth + 1);
			if (depth == 2)
				CHECK(call_seal() == 0 && all_sealed(p, 4 * MB)); /* a clone may seal anew */
			generation(depth + 1);
		}
	CHECK(intact(p, 4 * MB, depth));
}

int main(void)
{
	p = memory(4 * MB, 1);
	seal();
	generation(1);
}
