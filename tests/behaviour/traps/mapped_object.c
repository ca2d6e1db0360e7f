/* An ELF file that a program maps for execution by itself, flat and not as the loader would, whose start is a guard, and whose end
   the file has lost since: a seal looks at it without meeting a signal, and says no where it can't read code. mmap(2), madvise(2), ftruncate(2). */

int main(void)
{
	char *p = memory(6 * MB, 1);
	int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat of;
	CHECK(exe >= 0 && fstat(exe, &of) == 0);
	char name[] = "object.XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0);
	char *bytes = malloc(of.st_size);
	CHECK(read(exe, bytes, of.st_size) == of.st_size && write(fd, bytes, of.st_size) == of.st_size);
	char *flat = mmap(NULL, of.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	char *guarded = mmap(NULL, of.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	CHECK(flat != MAP_FAILED && guarded != MAP_FAILED);
	/* Linux 6.15; before that only memory without a file can have guards. */
	CHECK(madvise(guarded, PAGE, MADV_GUARD_INSTALL) == 0 || errno == EINVAL);
	CHECK(ftruncate(fd, PAGE) == 0);
	CHECK(call_seal() == 0 || sealed_bytes(p, 6 * MB) == 0);
	CHECK(intact(p, 6 * MB, 1));
	CHECK(munmap(flat + PAGE, of.st_size - PAGE) == 0 && munmap(guarded, of.st_size) == 0);
	seal();
	CHECK(sealed_bytes(p, 6 * MB) > 0 && intact(p, 6 * MB, 1));
	CHECK(memcmp(flat, bytes, PAGE) == 0);
}
