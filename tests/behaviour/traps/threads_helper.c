/* The process that stops threads for a seal is killed in the middle, again and again, and another thread calls exec meanwhile: no
   byte is lost, nobody stays stopped, nothing is left behind.
   env: FLASHFORK_THREADS=stop */
#ifdef BY_SIGNALS
#include "no_ptrace.h"
#endif

static volatile int over;
static volatile long kills;
static uint64_t *p;

static void *kill_helpers(void *arg)
{
	int tid = (int)(size_t)arg;
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/children", tid);
	for (unsigned turn = 1; !over; turn++) {
		FILE *f = fopen(path, "re");
		if (!f)
			SKIP("this kernel doesn't list children");
		if (fgets(text, sizeof text, f) && atoi(text) > 0) {
			usleep(turn * 331 % 20000);
			kills += kill(atoi(text), SIGKILL) == 0;
		}
		fclose(f);
	}
	return NULL;
}

static void *count(void *arg)
{
	for (; !over; (*(uint64_t *)arg)++)
		for (size_t i = 0; i < 32 * MB / 8; i += 512)
			p[i]++;
	return NULL;
}

static void *exec_true(void *arg)
{
	char *args[] = {"true", NULL};
	usleep((unsigned)(size_t)arg);
	execvp("true", args);
	return NULL;
}

static size_t mappings(void)
{
	char line[512];
	size_t n = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	while (fgets(line, sizeof line, f))
		n += strchr(line, '\n') != NULL;
	fclose(f);
	return n;
}

int main(void)
{
	pthread_t t[2];
	uint64_t turns = 0;
#ifdef BY_SIGNALS
	forbid_ptrace();
#endif
	p = (uint64_t *)map_alone(32 * MB, RW, MAP_PRIVATE);
	memset(p, 0, 32 * MB);
	char *quiet = memory(32 * MB, 5);
	START(&t[0], count, &turns);
	START(&t[1], kill_helpers, (void *)(size_t)getpid());
	int failed = 0;
	size_t before = mappings();
	/* Until a helper was killed in the middle of a seal. */
	for (int turn = 0; turn < 40 || kills == 0 || failed == 0 || turns <= 10; turn++) {
		failed += call_seal() != 0;
		CHECK(sealed_bytes(ALL) == 0 || flashfork_preload_unseal() == 0 || ++failed);
	}
	CHECK(mappings() < before + 60);
	for (pid_t pid = 0; pid >= 0;)
		pid = waitpid(-1, NULL, __WALL | WNOHANG);
	CHECK(errno == ECHILD);
	over = 1;
	for (int i = 0; i < 2; i++)
		JOIN(t[i]);
	CHECK(kills > 0 && failed > 0 && turns > 10);
	for (size_t i = 0; i < 32 * MB / 8; i++)
		CHECK(p[i] == (i % 512 ? 0 : turns));
	CHECK(intact(quiet, 32 * MB, 5));
	for (size_t turn = 0; turn < 20; turn++) {
		pid_t pid = fork();
		if (pid == 0) {
			over = 0;
			START(&t[0], count, &turns);
			START(&t[1], exec_true, (void *)(turn * 2000));
			for (;;) {
				call_seal();
				flashfork_preload_unseal();
			}
		}
		CHECK(pid > 0 && wait_for(pid) == 0);
	}
}
