/* How much a program has read from files, /proc among them: what a walk through all pages would show in. proc_pid_io(5). */

/* Bytes; always 0 where the kernel doesn't count them. */
static size_t bytes_read(void)
{
	size_t bytes = 0;
	FILE *io = fopen("/proc/self/io", "r");
	if (io == NULL)
		return 0;
	CHECK(fscanf(io, "rchar: %zu", &bytes) == 1);
	fclose(io);
	return bytes;
}
