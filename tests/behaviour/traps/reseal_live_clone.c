/* Sealing anew while a clone lives: the clone goes on with the bytes it was born with, because every seal has a memfd of its own. */

int main(void)
{
	char byte, *p = memory(4 * MB, 1);
	int go[2];
	seal();
	CHECK(pipe(go) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(go[1]);
		CHECK(read(go[0], &byte, 1) == 0); /* until the parent has sealed anew */
		CHECK(intact(p, 4 * MB, 1));
		_exit(0);
	}
	fill(p, 4 * MB, 2);
	CHECK(call_seal() == 0 && all_sealed(p, 4 * MB));
	close(go[1]);
	CHECK(wait_for(pid) == 0);
	IN_CLONE
		CHECK(intact(p, 4 * MB, 2));
}
