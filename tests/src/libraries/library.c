/* A library with relocated pages, and data that its constructor writes. */
#define WORDS (4 * 4096 / sizeof(unsigned long))

const void *const table[1024] = {[0 ... 1023] = &table[1]};
unsigned long data[WORDS] __attribute__((aligned(4096))) = {[0 ... WORDS - 1] = 1};

__attribute__((constructor)) static void fill(void)
{
	for (unsigned long i = 0; i < WORDS; i++)
		*(volatile unsigned long *)&data[i] = i;
}
