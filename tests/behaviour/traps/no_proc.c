/* A sealed process whose /proc somebody takes away: clones are right, a further seal fails cleanly, and a discard gives zeros.
   chroot(2), clone(2) with CLONE_FS. */

int main(void)
{
	char *p = memory(4 * MB, 1), *gone = memory(4 * MB, 2);
	seal();
	if (!lose_proc())
		SKIP("no chroot without root or user namespaces");
	IN_CLONE {
		CHECK(intact(p, 4 * MB, 1));
		CHECK(discard_zeros(gone, 4 * MB));
		CHECK(flashfork_preload_seal() == -1);
	}
	CHECK(intact(p, 4 * MB, 1) && intact(gone, 4 * MB, 2));
}
