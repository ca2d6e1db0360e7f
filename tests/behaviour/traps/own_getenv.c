/* A program with a getenv of its own, as bash has, that isn't ready before main: the shim doesn't call it. */

extern char **environ;
static int ready;

char *getenv(const char *name)
{
	size_t len = strlen(name);
	if (!ready)
		abort();
	for (char **at = environ; *at; at++)
		if (strncmp(*at, name, len) == 0 && (*at)[len] == '=')
			return *at + len + 1;
	return NULL;
}

int main(void)
{
	ready = 1;
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(all_sealed(p, 4 * MB) && getenv("LD_PRELOAD") != NULL);
}
