/* Children: the template's children are no children of a clone, which can't wait for them. waitpid(2).
   clone: missing
   do: start helpers in the clone, or talk to them by other means */

int main(void)
{
	seal();
	pid_t child = forked();
	if (child == 0) {
		pause();
		_exit(0);
	}
	IN_CLONE
		CHECK(waitpid(child, NULL, WNOHANG) == -1 && errno == ECHILD);
	CHECK(kill(child, SIGKILL) == 0 && wait_for(child) == 128 + SIGKILL);
}
