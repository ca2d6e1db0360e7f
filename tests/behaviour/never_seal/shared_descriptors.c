/* A process whose table of descriptors another uses too, which has memory of its own: what the engine opens there could be another
   file by its next call. Neither such a process is sealed, nor one that has made one, be it by clone(2) or clone3(2), though
   its clones are. What is sealed by then stays right. Before that the table was another's in the middle of seals and
   discards: the other's file was written to and mapped. */

#define LEN (32 * MB)
#define SIZE (64 * PAGE)

static int file;
static volatile int *over;

/* Puts its file at the lowest numbers that are free, and looks whether it stays there. */
static void replace(void)
{
	struct stat status;
	/* A failure leaves nobody behind. */
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	while (!*over) {
		int last = dup(file);
		CHECK(last >= 0);
		for (int fd = last + 1; fd < last + 4; fd++)
			CHECK(dup2(file, fd) == fd);
		for (int fd = last; fd < last + 4; fd++)
			CHECK(fstat(fd, &status) == 0 && status.st_size == SIZE && close(fd) == 0);
	}
	_exit(0);
}

static pid_t sharing(long number)
{
	uint64_t args[11] = {CLONE_FILES, 0, 0, 0, SIGCHLD};
	pid_t pid = (pid_t)(number == SYS_clone ? syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0)
	                                        : syscall(SYS_clone3, args, sizeof args));
	CHECK(pid >= 0);
	if (pid == 0)
		replace();
	return pid;
}

/* With one that is there already, or that comes when memory is sealed. Nothing is opened here beside it. */
static void beside(long number, int sealed_before)
{
	char *p = memory(LEN, 1);
	*over = 0;
	if (sealed_before) {
		seal();
		CHECK(all_sealed(p, LEN));
	}
	pid_t other = sharing(number);
	for (size_t turn = 0; turn < often(60); turn++) {
		char *ordinary = memory(ORDINARY, 2);
		CHECK(call_seal() == -1 && intact(ordinary, ORDINARY, 2));
		CHECK(munmap(ordinary, ORDINARY) == 0);
		char *part = p + turn % (LEN / MB) * MB;
		CHECK(discard_zeros(part, PAGE));
		IN_CLONE
			CHECK(zeros(part, PAGE));
		for (size_t i = 0; i < PAGE / 8; i++)
			((uint64_t *)part)[i] = pattern((size_t)(part - p) / 8 + i, 1);
	}
	if (sealed_before)
		at_last(flashfork_preload_unseal);
	*over = 1;
	CHECK(wait_for(other) == 0);
	CHECK(intact(p, LEN, 1) && call_seal() == -1 && sealed_bytes(ALL) == 0);
	/* A clone has a table of its own. */
	IN_CLONE {
		seal();
		CHECK(munmap(p, LEN) == 0);
	}
}

/* A process that seals for the first time knows nothing. Its question whether there is a filter had a file open for a moment, and
   the other's dup2(2) failed with EBUSY. */
static void first(long number)
{
	*over = 0;
	pid_t other = sharing(number);
	char *ordinary = memory(ORDINARY, 2);
	CHECK(call_seal() == -1 && intact(ordinary, ORDINARY, 2));
	*over = 1;
	CHECK(wait_for(other) == 0);
}

int main(void)
{
	struct stat status;
	char page[PAGE], name[] = "/tmp/flashfork-XXXXXX";
	over = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(over != MAP_FAILED && (file = mkstemp(name)) >= 0 && unlink(name) == 0);
	memset(page, 'F', PAGE);
	for (size_t at = 0; at < SIZE; at += PAGE)
		CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
	int before = descriptors();
	for (int i = 0; i < 4; i++)
		IN_CLONE {
			beside(i & 1 ? SYS_clone3 : SYS_clone, i & 2);
			CHECK(descriptors() == before);
		}
	for (size_t turn = 0; turn < often(200); turn++)
		IN_CLONE
			first(turn & 1 ? SYS_clone3 : SYS_clone);
	CHECK(fstat(file, &status) == 0 && status.st_size == SIZE);
	char found[PAGE];
	for (size_t at = 0; at < SIZE; at += PAGE)
		CHECK(pread(file, found, PAGE, (off_t)at) == (ssize_t)PAGE && memcmp(found, page, PAGE) == 0);
}
