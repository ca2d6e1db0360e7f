/* A system call of the program's own that may make memory executable: so code runs that nobody has looked through, which discards
   memory. The process is refused, and what is discarded reads zeros. mprotect(2). */
#include "../own_calls.h"

__attribute__((noinline)) static long own_mprotect(void *addr, size_t len, long prot)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(10L), "D"(addr), "S"(len), "d"(prot) : "rcx", "r11", "memory");
	return result;
}

int main(int argc, char **argv)
{
	(void)argv;
	write_code("./code");
	int fd = open("./code", O_RDONLY | O_CLOEXEC);
	char *p = memory_at_place();
	int sealed = call_seal() == 0;
	void *code = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(code != MAP_FAILED && own_mprotect(code, PAGE, argc > 0 ? PROT_READ | PROT_EXEC : PROT_READ) == 0);
	((void (*)(void))code)();
	CHECK(zeros(p, PLACE_LEN) && !sealed && sealed_bytes(ALL) == 0);
}
