/* Calls made through libc's own handle instead of the program's symbols: what they discard reads zeros, what they grow too, and what
   they lock is anonymous. dlsym(3).
   cflags: -ldl */
#include "past.h"

int main(void)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	CHECK(libc != NULL);
	past_the_symbols((struct calls){
		.madvise = dlsym(libc, "madvise"),
		.mremap = dlsym(libc, "mremap"),
		.mlock = dlsym(libc, "mlock"),
		.syscall = dlsym(libc, "syscall"),
	});
}
