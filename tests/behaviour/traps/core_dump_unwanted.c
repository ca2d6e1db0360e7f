/* Whoever keeps private anonymous memory out of core dumps finds no sealed memory in them either: a seal leaves such a filter alone,
   in clones too. core(5), coredump_filter. */

static void set(const char *text)
{
	int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

int main(void)
{
	char *p = memory(4 * MB, 1);
	set("0x12");
	seal();
	CHECK(all_sealed(p, 4 * MB) && coredump_filter() == 0x12);
	IN_CLONE
		CHECK(coredump_filter() == 0x12);
	unseal();
	CHECK(coredump_filter() == 0x12);
	/* Who wants it gets it. */
	set("0x33");
	seal();
	CHECK((coredump_filter() & 0x37) == 0x37);
	unseal();
	CHECK(coredump_filter() == 0x33);
}
