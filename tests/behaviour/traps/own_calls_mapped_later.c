/* Code with system calls of its own that is mapped after the seal without the loader: by mmap, by mprotect, and made in anonymous
   memory. mmap(2), mprotect(2). */
#include "../own_calls.h"

static void run(void *code)
{
	((void (*)(void))code)();
}

static void *mapped(int fd, int prot)
{
	void *code = mmap(NULL, PAGE, prot, MAP_PRIVATE, fd, 0);
	CHECK(code != MAP_FAILED);
	return code;
}

int main(void)
{
	write_code("./code");
	int fd = open("./code", O_RDONLY | O_CLOEXEC);
	char *p = memory_at_place();
	seal();
	IN_CLONE {
		void *code = mapped(fd, PROT_READ | PROT_EXEC);
		CHECK(sealed_bytes(ALL) == 0);
		run(code);
		CHECK(zeros(p, PLACE_LEN));
	}
	IN_CLONE {
		void *code = mapped(fd, PROT_READ);
		CHECK(all_sealed(p, PLACE_LEN));
		CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0 && sealed_bytes(ALL) == 0);
		run(code);
		CHECK(zeros(p, PLACE_LEN));
	}
	IN_CLONE {
		void *code = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(code, discards, sizeof discards);
		CHECK(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0 && sealed_bytes(ALL) == 0);
		run(code);
		CHECK(zeros(p, PLACE_LEN));
	}
	CHECK(all_sealed(p, PLACE_LEN) && intact(p, PLACE_LEN, 7));
}
