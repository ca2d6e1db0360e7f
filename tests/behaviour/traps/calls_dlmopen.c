/* A second libc, in a namespace of its own: its calls are looked at like the first one's. dlmopen(3).
   cflags: -ldl */
#include "past.h"

int main(void)
{
	void *second = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
	if (second == NULL)
		SKIP("no second libc: %s", dlerror());
	CHECK(dlsym(second, "madvise") != (void *)madvise);
	past_the_symbols((struct calls){
		.madvise = dlsym(second, "madvise"),
		.mremap = dlsym(second, "mremap"),
		.mlock = dlsym(second, "mlock"),
		.syscall = dlsym(second, "syscall"),
		.errno_location = dlsym(second, "__errno_location"),
	});
}
