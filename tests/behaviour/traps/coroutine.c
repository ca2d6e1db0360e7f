/* A seal on a coroutine's stack, which is ordinary memory and would be sealed with it: the pages around the stack pointer stay
   out, by address. makecontext(3). */
#include <ucontext.h>

static ucontext_t main_context, context;
static char *p;

static void coroutine(void)
{
	char local[32 * 1024];
	fill(local, sizeof local, 2);
	CHECK(call_seal() == 0);
	CHECK(sealed_bytes(local, sizeof local) == 0);
	CHECK(intact(local, sizeof local, 2));
	IN_CLONE
		CHECK(intact(local, sizeof local, 2));
	swapcontext(&context, &main_context);
	CHECK(intact(local, sizeof local, 2));
}

int main(void)
{
	p = memory(16 * MB, 1);
	CHECK(getcontext(&context) == 0);
	context.uc_stack.ss_sp = p + 8 * MB;
	context.uc_stack.ss_size = 4 * MB;
	context.uc_link = &main_context;
	makecontext(&context, coroutine, 0);
	CHECK(swapcontext(&main_context, &context) == 0);
	CHECK(all_sealed(p, 8 * MB) && intact(p, 8 * MB, 1));
	CHECK(swapcontext(&main_context, &context) == 0);
}
