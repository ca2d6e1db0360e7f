/* The first process that a program starts after unshare(CLONE_NEWPID) is the first of its namespace, and the program's own: none
   that asks the kernel something comes before it, and ends the namespace. pid_namespaces(7). */

int main(void)
{
	int end[2];
	pthread_t other;
	char *p = memory(8 * MB, 1);
	seal();
	/* Who is not root may make one in a namespace of users, which needs a process with one thread. */
	if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0)
		SKIP("no namespace of users for an ordinary user: %s", strerror(errno));
	make_other(&other, end);
	if (unshare(CLONE_NEWPID) != 0)
		SKIP("no namespace of processes: %s", strerror(errno));
	CHECK(discard_zeros(p + PAGE, 2 * PAGE));
	char *moved = mremap(p, 8 * MB, 9 * MB, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && zeros(moved + 8 * MB, MB) && zeros(moved + PAGE, 2 * PAGE));
	int hold[2];
	CHECK(pipe(hold) == 0);
	pid_t first = forked();
	if (first == 0) {
		char told;
		close(hold[1]);
		CHECK(getpid() == 1 && read(hold[0], &told, 1) == 1);
		_exit(0);
	}
	pid_t second = forked();
	if (second == 0)
		_exit(getpid() == 2 ? 0 : 1);
	CHECK(wait_for(second) == 0);
	CHECK(write(hold[1], "", 1) == 1 && wait_for(first) == 0);
	end_other(other, end);
}
