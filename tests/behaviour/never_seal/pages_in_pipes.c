/* A process that has put pages of its memory into a pipe: they show what is written to them as long as they are there. Its clones
   are sealed. vmsplice(2). */

int main(void)
{
	char *p = memory(4 * MB, 1), byte;
	for (int by_number = 0; by_number < 2; by_number++) {
		int ends[2];
		CHECK(pipe(ends) == 0);
		p[0] = 1; /* after a fork the first write makes a page of its own */
		struct iovec page = {p, PAGE};
		ssize_t n = by_number ? syscall(SYS_vmsplice, ends[1], &page, 1, 0) : vmsplice(ends[1], &page, 1, 0);
		if (n == -1)
			SKIP("no vmsplice here: %s", strerror(errno));
		CHECK(n == (ssize_t)PAGE);
		CHECK(call_seal() == -1 && sealed_bytes(ALL) == 0);
		p[0] = (char)(5 + by_number);
		CHECK(read(ends[0], &byte, 1) == 1 && byte == 5 + by_number);
		p[0] = (char)pattern(0, 1);
		close(ends[0]);
		close(ends[1]);
		refused();
	}
	IN_CLONE
		seal();
}
