/* Secrets: a clone has what its template had at the fork, and what the template wipes afterwards stays in the sealed memory until template and all
   clones of that time have ended. memfd_create(2).
   clone: renew
   do: wipe before the seal, exclude the range, or use MADV_WIPEONFORK or MADV_DONTDUMP memory, which is never sealed */

int main(void)
{
	char *p = memory(4 * MB, 1);
	int go[2];
	char c;
	CHECK(pipe(go) == 0);
	seal();
	pid_t before = forked();
	if (before == 0) {
		CHECK(read(go[0], &c, 1) == 1 && intact(p, 4 * MB, 1));
		_exit(0);
	}
	memset(p, 0, 4 * MB);
	CHECK(write(go[1], "x", 1) == 1 && wait_for(before) == 0);
	IN_CLONE
		CHECK(zeros(p, 4 * MB));
}
