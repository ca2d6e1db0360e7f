/* Under READ_IMPLIES_EXEC (personality(2)), which a program may set itself, the engine's own memory is executable, too: what is
   looked through for code is the program's alone. With one thread and with two; bytes and discards are right.
   env: FLASHFORK_THREADS=stop */
#include <sys/personality.h>

static void sealed_well(void)
{
	char *p = memory(4 * MB, 1);
	at_last(call_seal);
	CHECK(all_sealed(p, 4 * MB) && intact(p, 4 * MB, 1));
	IN_CLONE {
		CHECK(intact(p, 4 * MB, 1));
		fill(p, 4 * MB, 2);
	}
	CHECK(intact(p, 4 * MB, 1));
	CHECK(discard_zeros(p, MB));
}

int main(void)
{
	int end[2];
	pthread_t other;
	CHECK(personality(READ_IMPLIES_EXEC) >= 0);
	seal();
	sealed_well();
	make_other(&other, end);
	sealed_well();
	unseal();
	end_other(other, end);
}
