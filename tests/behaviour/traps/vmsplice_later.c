/* Pages that a sealed program puts into a pipe show what is written to them as long as they are there, as pages of plain memory do.
   vmsplice(2). */

/* What comes out of the pipe when the page is written to in between. */
static char spliced(char *p, int by_number)
{
	int ends[2];
	char byte;
	CHECK(pipe(ends) == 0);
	struct iovec page = {p, PAGE};
	p[0] = 1;
	ssize_t n = by_number ? syscall(SYS_vmsplice, ends[1], &page, 1, 0) : vmsplice(ends[1], &page, 1, 0);
	if (n == -1)
		SKIP("no vmsplice here: %s", strerror(errno));
	CHECK(n == (ssize_t)PAGE);
	p[0] = 2;
	CHECK(read(ends[0], &byte, 1) == 1);
	close(ends[0]);
	close(ends[1]);
	return byte;
}

int main(void)
{
	char *p = memory(4 * MB, 1), *plain = memory(4 * MB, 1), *untouched = p + 2 * MB;
	seal();
	for (int by_number = 0; by_number < 2; by_number++)
		IN_CLONE {
			char sealed = spliced(untouched, by_number);
			CHECK(sealed_bytes(ALL) == 0 && intact(p, 2 * MB, 1));
			CHECK(sealed == spliced(plain, by_number) && sealed == spliced(untouched, by_number));
			CHECK(call_seal() == -1);
		}
}
