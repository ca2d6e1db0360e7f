/*
 * Templates and clones without the command: warms Python with a module once, runs a script in a clone, and removes the template.
 *
 *   cc template.c -o template $(pkg-config --cflags --libs flashfork)
 *   ./template $(pkg-config --variable=shim flashfork)
 */
#include <flashfork.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, flashfork_last_error());
	return 1;
}

int main(int argc, char **argv)
{
	static const char *const program[] = {"python3", "-c", "import decimal", NULL};
	static const char *const script[] = {"-c", "import decimal; print(decimal.Decimal(7) ** 2)", NULL};
	const char *const *environment = (const char *const *)environ;
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	struct flashfork_warm_options options = {0};
	struct flashfork_template_facts facts;
	struct flashfork_clone *clone;
	char name[32];
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: %s SHIM\n", argv[0]);
		return 2;
	}
	snprintf(name, sizeof name, "example-%ld", (long)getpid());
	options.shim = argv[1];
	options.envp = environment;
	if (flashfork_template_warm(runtime, name, program, &options, &facts) != 0)
		return failed("warm");
	printf("process %lu waits, %lu KB of it sealed\n", (unsigned long)facts.pid, (unsigned long)facts.sealed_bytes >> 10);
	fflush(stdout);

	clone = flashfork_template_clone(runtime, name, script, environment, NULL, NULL);
	if (!clone)
		return failed("clone");
	if (flashfork_clone_wait(clone, -1, &status) != 0)
		return failed("wait");
	printf("clone %ld has ended with exit status %d\n", (long)flashfork_clone_pid(clone), WEXITSTATUS(status));
	flashfork_clone_free(clone);
	if (flashfork_template_remove(runtime, name, NULL) != 0)
		return failed("remove");
	return 0;
}
