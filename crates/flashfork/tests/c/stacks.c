/* A snapshot returns again wherever it was taken: deep in the main thread's stack or high above where that has grown since, in a
   frame that longjmp has left, in a coroutine whose stack was freed, in a handler that has returned. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define TURNS 5
#define STACK (256 << 10)

static int turn; /* goes back, and is set again by whoever takes the snapshot */

static void take(void)
{
	turn = flashfork_snapshot(NULL);
	CHECK(turn >= 0);
}

static void again(void)
{
	if (turn < TURNS) {
		flashfork_restore(turn + 1);
		CHECK(!"a restore returned");
	}
}

/* 8 KB in each frame, which are what they were when `end` has returned. */
static void deep(int frames, void (*end)(void))
{
	volatile unsigned char bytes[8192];

	memset((void *)bytes, frames, sizeof bytes);
	if (frames > 0)
		deep(frames - 1, end);
	else if (end)
		end();
	for (size_t i = 0; i < sizeof bytes; i++)
		CHECK(bytes[i] == (unsigned char)frames);
}

static void high_above(void)
{
	take();
	deep(400, NULL);
	again();
}

static void far_below(void)
{
	deep(400, take);
	deep(300, NULL);
	again();
}

static void left_by_longjmp(void)
{
	static jmp_buf here;
	volatile int local = 1;

	if (!setjmp(here)) {
		take();
		local = 2;
		longjmp(here, 1);
	}
	CHECK(local == 2);
	again();
}

static ucontext_t outside, inside;
static int ended;

static void coroutine(void)
{
	take();
	swapcontext(&inside, &outside);
	ended = 1;
	swapcontext(&inside, &outside);
}

static void of_a_coroutine(void)
{
	char *stack = malloc(STACK);

	CHECK(stack && getcontext(&inside) == 0);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = STACK;
	makecontext(&inside, coroutine, 0);
	swapcontext(&outside, &inside);
	if (turn < TURNS) {
		memset(stack, 3, STACK);
		free(stack);
	}
	again();
	swapcontext(&outside, &inside);
	CHECK(ended == 1);
}

static void handler(int number)
{
	(void)number;
	take();
}

static void of_a_handler(void)
{
	stack_t own = {.ss_sp = malloc(STACK), .ss_size = STACK};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

	CHECK(own.ss_sp && sigaltstack(&own, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	raise(SIGUSR1);
	if (turn < TURNS)
		memset(own.ss_sp, 3, STACK);
	again();
}

int main(void)
{
	void (*const all[])(void) = {high_above, far_below, left_by_longjmp, of_a_coroutine, of_a_handler};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			all[i]();
			CHECK(turn == TURNS);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
}
