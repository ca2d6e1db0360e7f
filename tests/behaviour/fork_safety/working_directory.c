/* Working directory, umask, environment: copied, and changed for oneself only. fork(2).
   clone: own
   do: set them in the clone if they should be its caller's (`flashfork clone` does) */

int main(void)
{
	char before[4096], after[4096];
	mode_t mask = umask(022);
	umask(mask);
	CHECK(getcwd(before, sizeof before) && setenv("WHO", "template", 1) == 0);
	seal();
	IN_CLONE {
		CHECK(strcmp(getenv("WHO"), "template") == 0);
		CHECK(chdir("/") == 0 && setenv("WHO", "clone", 1) == 0);
		umask(mask ^ 07);
	}
	CHECK(getcwd(after, sizeof after) && strcmp(before, after) == 0);
	CHECK(strcmp(getenv("WHO"), "template") == 0 && umask(mask) == mask);
}
