/*
 * The harness of every target of `bench fuzz --targets`. With -DLOOP it has AFL's persistent loop, otherwise the fork server
 * gives each input a process. With arguments it measures what AFL's own account doesn't tell:
 *
 *     __AFL_PERSISTENT=1 target ROUNDS INPUT...
 *
 * prints, in microseconds, the mean over all inputs of the median time that an input takes in one process; in a fork of its
 * own; in a round of the loop, which is stopped and continued as AFL does it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void warm_up(void);
void run_one_input(const unsigned char *input, size_t len);

__AFL_FUZZ_INIT();

struct input {
	unsigned char *bytes;
	size_t len;
	double *times; /* one for each round */
};

/* What the processes share. */
struct shared {
	size_t next;
	double mean;
};

static struct input *inputs;
static size_t count, rounds;
static volatile struct shared *shared;

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void load(struct input *input, const char *path)
{
	int fd = open(path, O_RDONLY);
	struct stat stat;

	must(fd >= 0 && fstat(fd, &stat) == 0, path);
	input->len = (size_t)stat.st_size;
	input->bytes = malloc(input->len + 1);
	input->times = calloc(rounds, sizeof *input->times);
	must(input->bytes != NULL && input->times != NULL, "memory");
	must(read(fd, input->bytes, input->len) == (ssize_t)input->len, path);
	close(fd);
}

static int compare(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;

	return (difference > 0) - (difference < 0);
}

static double mean_of_medians(void)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++) {
		qsort(inputs[i].times, rounds, sizeof *inputs[i].times, compare);
		sum += inputs[i].times[rounds / 2];
	}
	return sum / (double)count;
}

static void run(size_t i)
{
	if (inputs[i].len > 0)
		run_one_input(inputs[i].bytes, inputs[i].len);
}

/* One input after another in one process: a child, which takes with it what they leave. */
static double bare(void)
{
	pid_t child = fork();

	must(child >= 0, "fork");
	if (child == 0) {
		for (size_t at = 0; at < rounds * count; at++) {
			double begin = now();

			run(at % count);
			inputs[at % count].times[at / count] = now() - begin;
		}
		shared->mean = mean_of_medians();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return shared->mean;
}

static double forked(void)
{
	for (size_t at = 0; at < rounds * count; at++) {
		double begin = now();
		pid_t child = fork();

		must(child >= 0, "fork");
		if (child == 0) {
			run(at % count);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		inputs[at % count].times[at / count] = now() - begin;
	}
	return mean_of_medians();
}

#ifdef LOOP
static double looped(void)
{
	int status;
	pid_t child = fork();

	must(child >= 0, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		shared->next = 0;
		while (__AFL_LOOP(rounds * count + 2))
			run(shared->next % count);
		_exit(0);
	}
	/* The first round prepares the loop. */
	must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "the loop's first round");
	for (size_t at = 0; at < rounds * count; at++) {
		double begin = now();

		shared->next = at;
		kill(child, SIGCONT);
		must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "a round of the loop");
		inputs[at % count].times[at / count] = now() - begin;
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return mean_of_medians();
}
#else
static double looped(void)
{
	return 0;
}
#endif

static int measure(int argc, char **argv)
{
	rounds = strtoul(argv[1], NULL, 10);
	count = (size_t)argc - 2;
	inputs = calloc(count, sizeof *inputs);
	must(rounds > 0 && count > 0 && inputs != NULL, "arguments");
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(shared != MAP_FAILED, "mmap");
	for (size_t i = 0; i < count; i++)
		load(&inputs[i], argv[i + 2]);
	double one = bare(), two = forked(), three = looped();
	printf("%f %f %f\n", one, two, three);
	return 0;
}

int main(int argc, char **argv)
{
	const unsigned char *input;

	warm_up();
	if (argc > 2)
		return measure(argc, argv);
	__AFL_INIT();
	input = __AFL_FUZZ_TESTCASE_BUF;
#ifdef LOOP
	while (__AFL_LOOP(10000))
#endif
	{
		int len = __AFL_FUZZ_TESTCASE_LEN;

		if (len > 0)
			run_one_input(input, (size_t)len);
	}
	_exit(0);
}
