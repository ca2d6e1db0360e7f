/*
 * Harnesses of which each round looks for what the rounds before have left: rounds WHAT LOG < INPUT. A round that finds
 * something aborts, which AFL saves as a crash. LOG gets a line for each round: the process, and the input's length.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s: line %d: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

static unsigned char input[4096];
static ssize_t len;
static const char *name;

/* Leaves nothing in this process: its descriptor is closed again. */
static void log_round(void)
{
	char line[64];
	int n = snprintf(line, sizeof line, "%d %zd\n", (int)getpid(), len);
	int fd = open(name, O_WRONLY | O_APPEND | O_CREAT, 0600);

	MUST(fd >= 0 && write(fd, line, (size_t)n) == n);
	close(fd);
}

/* Its path depends on how many rounds there were. */
static void count(void)
{
	static unsigned rounds;

	switch (rounds++ % 8) {
	case 1: puts("one"); break;
	case 2: puts("two"); putchar('2'); break;
	case 3: if (len > 2) puts("three"); break;
	case 4: if (input[0] == 'x') puts("four"); else putchar('4'); break;
	case 5: for (ssize_t i = 0; i < len; i++) putchar(input[i]); break;
	case 6: fputs("six", stderr); break;
	default: break;
	}
}

static int data = 7;
static char *heap, *big;
static int file;
static DIR *directory;
static FILE *stream;

static void prepare_memory(void)
{
	char path[] = "/tmp/flashfork-rounds-XXXXXX";

	heap = strdup("heap");
	MUST((big = calloc(8, 1 << 20)) != NULL);
	memset(big, 1, 8 << 20);
	MUST((file = mkstemp(path)) >= 0 && write(file, "0123456789", 10) == 10);
	MUST(lseek(file, 3, SEEK_SET) == 3);
	MUST((directory = opendir("/")) != NULL);
	MUST((stream = fopen(path, "r")) != NULL && fgetc(stream) == '0');
	unlink(path);
}

static void use_memory(void)
{
	static int bss;
	char *more = malloc(100000), byte;
	void *mapping = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd;

	MUST(data == 7 && bss == 0 && strcmp(heap, "heap") == 0 && big[123456] == 1 && big[(8 << 20) - 1] == 1);
	/* Descriptors, their offsets, and what stdio has read ahead. */
	MUST(read(file, &byte, 1) == 1 && byte == '3');
	MUST(fgetc(stream) == '1');
	MUST(readdir(directory) != NULL);
	while (readdir(directory) != NULL)
		continue;
	MUST((fcntl(file, F_GETFL) & O_NONBLOCK) == 0 && fcntl(file, F_SETFL, O_NONBLOCK) == 0);
	fd = open("/dev/null", O_RDONLY);
	MUST(fd == fileno(stream) + 1);
	MUST(more != NULL && mapping != MAP_FAILED);
	memset(mapping, 1, 1 << 20);
	memset(more, 1, 100000);
	memset(big, 2, 8 << 20);
	data = bss = 1;
	strcpy(heap, "used");
	/* What stays in a buffer is not written later. */
	printf("buffered");
}

/* Ends by exit, deep inside. */
__attribute__((noinline)) static void leave(int depth)
{
	char here[64];

	memset(here, depth, sizeof here);
	if (depth > 0)
		leave(depth - 1);
	else
		exit(here[3] + 5);
}

static pthread_barrier_t begun;

static void *sleeper(void *unused)
{
	pthread_barrier_wait(&begun);
	for (;;)
		pause();
	return unused;
}

static void begin_thread(void)
{
	pthread_t thread;

	MUST(pthread_barrier_init(&begun, NULL, 2) == 0);
	MUST(pthread_create(&thread, NULL, sleeper, NULL) == 0);
	pthread_barrier_wait(&begun);
}

static int event;

/* Another object gets the number of one that was there. */
static void replace_event(void)
{
	MUST(close(event) == 0 && eventfd(0, 0) == event);
}

/* The child's path belongs to this round, too. */
static void end_in_child(void)
{
	pid_t child = fork();

	MUST(child >= 0);
	if (child == 0)
		exit(0);
	MUST(waitpid(child, NULL, 0) == child);
}

/* AddressSanitizer finds it; without, nothing happens. */
static void overflow(void)
{
	volatile unsigned char *exact = malloc(8);
	volatile int at = len > 0 && input[0] > 'A' ? 8 : 7;

	MUST(exact != NULL);
	exact[at] = 1;
	free((void *)exact);
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";

	name = argv[argc - 1];
	if (strcmp(what, "memory") == 0)
		prepare_memory();
	if (strcmp(what, "early-threads") == 0)
		begin_thread();
	__AFL_INIT();
	if (strcmp(what, "threads") == 0)
		begin_thread();
	if (strcmp(what, "event") == 0)
		MUST((event = eventfd(0, 0)) >= 0);
	while (__AFL_LOOP(400)) {
		len = read(STDIN_FILENO, input, sizeof input);
		log_round();
		if (strcmp(what, "count") == 0)
			count();
		else if (strcmp(what, "memory") == 0)
			use_memory();
		else if (strcmp(what, "exit") == 0)
			leave(20);
		else if (strcmp(what, "close") == 0)
			close(STDERR_FILENO);
		else if (strcmp(what, "event") == 0)
			replace_event();
		else if (strcmp(what, "late-threads") == 0)
			begin_thread();
		else if (strcmp(what, "overflow") == 0)
			overflow();
		else if (strcmp(what, "child") == 0)
			end_in_child();
	}
	return 0;
}
