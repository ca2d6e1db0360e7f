/* The same with a call that may map code. mmap(2). */
#include "../own_calls.h"

__attribute__((noinline)) static void *own_mmap(size_t len, long prot, int file)
{
	void *result;
	register long flags __asm__("r10") = MAP_PRIVATE, fd __asm__("r8") = file, offset __asm__("r9") = 0;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(9L), "D"(0L), "S"(len), "d"(prot), "r"(flags), "r"(fd), "r"(offset)
	                 : "rcx", "r11", "memory");
	return result;
}

int main(int argc, char **argv)
{
	(void)argv;
	write_code("./code");
	int fd = open("./code", O_RDONLY | O_CLOEXEC);
	char *p = memory_at_place();
	int sealed = call_seal() == 0;
	void *code = own_mmap(PAGE, argc > 0 ? PROT_READ | PROT_EXEC : PROT_READ, fd);
	CHECK(fd >= 0 && (unsigned long)code < -4096UL);
	((void (*)(void))code)();
	CHECK(zeros(p, PLACE_LEN) && !sealed && sealed_bytes(ALL) == 0);
}
