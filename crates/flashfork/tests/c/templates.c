/* Templates and clones of sh from C: what they have, how they end, and what is refused. Arguments: the shim, a directory of the
   test's own. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *place;
static const char *const shell[] = {"sh", NULL};
static const char *const path[] = {"PATH=/usr/bin:/bin", NULL};

static int descriptors(void)
{
	DIR *open = opendir("/proc/self/fd");
	int count = 0;

	CHECK(open);
	while (readdir(open))
		count++;
	closedir(open);
	return count;
}

static struct flashfork_clone *run(const char *script, const int *fds)
{
	const char *const argv[] = {"-c", script, "sh", "a b", NULL};
	const char *const envp[] = {"X=one", "PATH=/usr/bin:/bin", NULL};

	return flashfork_template_clone(place, "t", argv, envp, "/usr", fds);
}

static int failed_with(int code, const char *text)
{
	int as_told = errno == code && strstr(flashfork_last_error(), text);

	if (!as_told)
		fprintf(stderr, "errno %d instead of %d: %s\n", errno, code, flashfork_last_error());
	return as_told;
}

static void clone_has_what_it_is_given(void)
{
	int output[2], fds[3] = {-1, -1, 2}, status;
	char text[256];
	struct flashfork_clone *clone;
	ssize_t len;

	for (int code = 0; code < 3; code++) {
		char script[64];

		CHECK(pipe2(output, O_CLOEXEC) == 0);
		fds[1] = output[1];
		snprintf(script, sizeof script, "echo $X $PWD \"$1\"; exit %d", code);
		clone = run(script, fds);
		CHECK(clone && flashfork_clone_pid(clone) > 1);
		close(output[1]);
		CHECK(flashfork_clone_wait(clone, -1, &status) == 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
		len = read(output[0], text, sizeof text - 1);
		CHECK(len > 0);
		text[len] = 0;
		CHECK(strcmp(text, "one /usr a b\n") == 0);
		close(output[0]);
		flashfork_clone_free(clone);
	}
}

static void *waits(void *clone)
{
	int status;

	CHECK(flashfork_clone_wait(clone, -1, &status) == 0);
	return WIFSIGNALED(status) ? (void *)(long)WTERMSIG(status) : NULL;
}

static void signals_come_from_another_thread(void)
{
	struct flashfork_clone *clone = run("while :; do sleep 1; done", NULL);
	pthread_t thread;
	void *ended;
	int status = 77;

	CHECK(clone);
	CHECK(flashfork_clone_wait(clone, 0, &status) == -1 && failed_with(ETIMEDOUT, "the clone runs") && status == 77);
	CHECK(flashfork_clone_signal(clone, 65, 0) == -1 && failed_with(EINVAL, "from 1 to 64"));
	CHECK(pthread_create(&thread, NULL, waits, clone) == 0);
	CHECK(flashfork_clone_signal(clone, SIGTERM, 1) == 0);
	CHECK(pthread_join(thread, &ended) == 0 && ended == (void *)(long)SIGTERM);
	CHECK(flashfork_clone_wait(clone, 0, &status) == 0 && WTERMSIG(status) == SIGTERM);
	CHECK(flashfork_clone_signal(clone, SIGTERM, 0) == 0);
	flashfork_clone_free(clone);
	flashfork_clone_free(NULL);
}

static void handled(int signal)
{
	(void)signal;
}

static void a_handled_signal_ends_a_wait(void)
{
	struct sigaction action = {.sa_handler = handled};
	struct flashfork_clone *clone = run("while :; do sleep 1; done", NULL);
	int done;

	CHECK(clone && sigaction(SIGALRM, &action, NULL) == 0);
	/* Again and again: one may come before the wait. */
	CHECK(!ualarm(10000, 10000));
	done = flashfork_clone_wait(clone, -1, NULL);
	CHECK(done == -1 && failed_with(EINTR, "wait again"));
	ualarm(0, 0);
	flashfork_clone_free(clone);
}

static void wrong_calls_are_told(void)
{
	const char *const threads[] = {"/etc/passwd", NULL}, *const none[] = {NULL};
	const char *const slow[] = {"sleep", "1000", NULL};
	struct flashfork_warm_options options = {0};
	struct flashfork_template_facts facts;
	int pipes[2];

	CHECK(flashfork_template_warm(place, "u", shell, NULL, NULL) == -1 && failed_with(EINVAL, "options is NULL"));
	CHECK(flashfork_template_warm(place, "u", shell, &options, NULL) == -1 && failed_with(EINVAL, "shim is NULL"));
	options.shim = "/nonexistent.so";
	options.envp = path;
	CHECK(flashfork_template_warm(place, "u", shell, &options, NULL) == -1 && failed_with(ENOENT, "is the shim"));
	options.shim = getenv("SHIM");
	CHECK(flashfork_template_warm(place, "u", none, &options, NULL) == -1 && failed_with(EINVAL, "no program"));
	CHECK(flashfork_template_warm(place, "-u", shell, &options, NULL) == -1 && failed_with(EINVAL, "a name is 1 to 64"));
	CHECK(flashfork_template_warm(place, "t", shell, &options, NULL) == -1 && failed_with(EEXIST, "there is a template t"));
	CHECK(flashfork_template_warm(place, "u", threads, &options, NULL) == -1 && failed_with(ENOENT, "no executable"));
	options.ready = 9;
	CHECK(flashfork_template_warm(place, "u", shell, &options, NULL) == -1 && failed_with(EINVAL, "FLASHFORK_READY_AUTO"));
	options.ready = FLASHFORK_READY_CALL;
	CHECK(flashfork_template_warm(place, "u", shell, &options, NULL) == -1 && failed_with(ECHILD, "before it was ready"));
	options.timeout_ms = 50;
	CHECK(flashfork_template_warm(place, "u", slow, &options, NULL) == -1 && failed_with(ETIMEDOUT, "in time"));
	options.timeout_ms = 0;
	CHECK(pipe2(pipes, O_CLOEXEC) == 0 && write(pipes[1], "", 1) == 1);
	options.cancel = &pipes[0];
	CHECK(flashfork_template_warm(place, "u", slow, &options, NULL) == -1 && failed_with(ECANCELED, "given up"));
	close(pipes[0]);
	close(pipes[1]);
	options.cancel = (const int[]){-1};
	CHECK(flashfork_template_warm(place, "u", slow, &options, NULL) == -1 && failed_with(EBADF, "no descriptor"));
	options.cancel = NULL;
	options.output = (const int[]){2, -1};
	CHECK(flashfork_template_warm(place, "u", slow, &options, NULL) == -1 && failed_with(EBADF, "no descriptor"));
	options.output = NULL;
	CHECK(waitpid(-1, NULL, WNOHANG) == 0); /* the template, and no other child */
	CHECK(flashfork_template_info(place, "u", &facts) == -1 && failed_with(ENOENT, "there is no template u"));
	CHECK(flashfork_template_info("/nowhere/x", "u", &facts) == -1 && failed_with(ENOENT, "doesn't exist"));
	CHECK(!flashfork_template_clone(place, "u", NULL, NULL, NULL, NULL) && failed_with(ENOENT, "there is no template u"));
	CHECK(!flashfork_template_clone(place, "t", NULL, NULL, "/nowhere", NULL) && failed_with(ENOENT, "working directory"));
}

static void a_changed_program_is_warmed_anew(struct flashfork_warm_options *options)
{
	char program[4096], command[9000];
	const char *const copy[] = {program, NULL}, *const argv[] = {"-c", "exit 5", NULL};
	struct flashfork_template_facts before, after;
	struct flashfork_clone *clone;
	int status;

	snprintf(program, sizeof program, "%s/copy", place);
	snprintf(command, sizeof command, "cp /bin/sh %s", program);
	CHECK(system(command) == 0);
	CHECK(flashfork_template_warm(place, "c", copy, options, &before) == 0);
	CHECK(flashfork_template_renew(place, "c", NULL) == 0);
	CHECK(flashfork_template_info(place, "c", &after) == 0 && after.pid == before.pid);
	snprintf(command, sizeof command, "rm %s && cp /bin/sh %s", program, program);
	CHECK(system(command) == 0);
	CHECK(!flashfork_template_clone(place, "c", argv, NULL, NULL, NULL) && failed_with(ESTALE, "/copy changed"));
	CHECK(flashfork_template_renew(place, "c", options) == -1 && failed_with(EINVAL, "only output"));
	CHECK(flashfork_template_renew(place, "c", NULL) == 0);
	CHECK(flashfork_template_info(place, "c", &after) == 0 && after.pid != before.pid && after.changed_files == 0);
	clone = flashfork_template_clone(place, "c", argv, NULL, NULL, NULL);
	CHECK(clone && flashfork_clone_wait(clone, -1, &status) == 0 && WEXITSTATUS(status) == 5);
	flashfork_clone_free(clone);
	CHECK(flashfork_template_remove(place, "c", NULL) == 0);
	options->watch = 1;
	CHECK(flashfork_template_warm(place, "c", copy, options, &before) == 0);
	options->watch = 0;
	CHECK(system(command) == 0);
	clone = flashfork_template_clone(place, "c", argv, path, NULL, NULL);
	CHECK(clone && flashfork_clone_wait(clone, -1, &status) == 0 && WEXITSTATUS(status) == 5);
	flashfork_clone_free(clone);
	CHECK(flashfork_template_info(place, "c", &after) == 0 && after.pid != before.pid);
	CHECK(unlink(program) == 0);
	CHECK(flashfork_template_renew(place, "c", NULL) == -1 && failed_with(ENOENT, "it stays as it was"));
	CHECK(flashfork_template_remove(place, "c", NULL) == 0);
	CHECK(flashfork_template_renew(place, "c", NULL) == -1 && failed_with(ENOENT, "there is no template c"));
}

static void counts(const char *name, const struct flashfork_template_facts *facts, void *data)
{
	CHECK(strcmp(name, "t") == 0 && facts->state == FLASHFORK_TEMPLATE_WAITING && facts->pid > 1);
	++*(int *)data;
}

int main(int argc, char **argv)
{
	struct flashfork_warm_options options = {0};
	struct flashfork_template_facts facts;
	struct flashfork_clone *clone;
	int before, count = 0;
	uint64_t running;

	CHECK(argc == 3);
	place = argv[2];
	CHECK(setenv("SHIM", argv[1], 1) == 0);
	options.shim = argv[1];
	options.envp = path;
	before = descriptors();
	CHECK(flashfork_template_warm(place, "t", shell, &options, &facts) == 0);
	CHECK(facts.ready == FLASHFORK_READY_MAIN && facts.clones_made == 0 && facts.pid > 1);
	clone_has_what_it_is_given();
	CHECK(descriptors() == before);
	signals_come_from_another_thread();
	a_handled_signal_ends_a_wait();
	wrong_calls_are_told();
	a_changed_program_is_warmed_anew(&options);
	CHECK(descriptors() == before);
	CHECK(flashfork_template_list(place, counts, &count) == 0 && count == 1);
	CHECK(flashfork_template_list(place, NULL, NULL) == -1 && failed_with(EINVAL, "each is NULL"));
	CHECK(flashfork_template_info(place, "t", &facts) == 0 && facts.clones_made == 5);
	clone = run("sleep 1000", NULL);
	CHECK(clone);
	CHECK(flashfork_template_remove(place, "t", &running) == 0 && running == 1);
	CHECK(flashfork_template_remove(place, "t", &running) == 0 && running == 0);
	CHECK(flashfork_clone_signal(clone, SIGKILL, 1) == 0 && flashfork_clone_wait(clone, -1, NULL) == 0);
	flashfork_clone_free(clone);
	CHECK(descriptors() == before);
}
