/* A program that a sealed process execs starts clean: no sealed memory, no descriptor left over; and it
   can be sealed itself. execve(2). */

int main(int argc, char **argv)
{
	char before[16];
	if (argc > 1) {
		CHECK(sealed_bytes(ALL) == 0 && descriptors() == atoi(argv[1]));
		seal();
		return 0;
	}
	snprintf(before, sizeof before, "%d", descriptors());
	seal();
	if (in_clone()) {
		execl("/proc/self/exe", argv[0], before, NULL);
		_exit(1);
	}
	execl("/proc/self/exe", argv[0], before, NULL);
	return 1;
}
