/* A library loaded with RTLD_DEEPBIND finds libc's symbols before the shim's. dlopen(3).
   cflags: -ldl */
#include "past.h"

static const char source[] =
	"#define _GNU_SOURCE\n"
	"#include <sys/mman.h>\n"
	"#include <unistd.h>\n"
	"#include <stdarg.h>\n"
	"int its_madvise(void *p, size_t n, int a) { return madvise(p, n, a); }\n"
	"void *its_mremap(void *p, size_t o, size_t n, int f, ...) { return mremap(p, o, n, f); }\n"
	"int its_mlock(const void *p, size_t n) { return mlock(p, n); }\n"
	"long its_syscall(long n, long a, long b, long c, long d, long e) { return syscall(n, a, b, c, d, e); }\n";

int main(void)
{
	FILE *file = fopen("deep.c", "we");
	CHECK(file != NULL && fputs(source, file) >= 0 && fclose(file) == 0);
	if (system("unset LD_PRELOAD; ${CC:-cc} -shared -fPIC -o deep.so deep.c") != 0)
		SKIP("no C compiler");
	void *deep = dlopen("./deep.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	CHECK(deep != NULL);
	past_the_symbols((struct calls){
		.madvise = dlsym(deep, "its_madvise"),
		.mremap = dlsym(deep, "its_mremap"),
		.mlock = dlsym(deep, "its_mlock"),
		.syscall = dlsym(deep, "its_syscall"),
	});
}
