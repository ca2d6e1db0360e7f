/* maps explain themselves: sealed memory carries the engine's name, in a clone too, and keeps address and protection.
   proc_pid_maps(5). */

int main(void)
{
	char wanted[64], line[8192], *p = memory(4 * MB, 1);
	int found = 0, ready[2], done[2];
	seal();
	CHECK(pipe(ready) == 0 && pipe(done) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		close(done[1]);
		_exit(read(done[0], &byte, 1) != 0);
	}
	snprintf(line, sizeof line, "/proc/%d/maps", pid);
	snprintf(wanted, sizeof wanted, "%zx-%zx rw-p ", (size_t)p, (size_t)p + 4 * MB);
	FILE *maps = fopen(line, "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps))
		found += strncmp(line, wanted, strlen(wanted)) == 0 && strstr(line, "/memfd:flashfork:") != NULL;
	close(done[1]);
	CHECK(found == 1 && wait_for(pid) == 0);
}
