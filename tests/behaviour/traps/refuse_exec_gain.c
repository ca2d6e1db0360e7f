/* Under PR_SET_MDWE no memory may become executable, nor writable and executable: libc's calls are led to the engine all the same, by
   /proc/self/mem. PR_SET_MDWE(2const), Linux 6.3. */
#include "past.h"

int main(void)
{
	if (prctl(65 /* PR_SET_MDWE */, 1 /* PR_MDWE_REFUSE_EXEC_GAIN */, 0, 0, 0) != 0)
		SKIP("this kernel has no PR_SET_MDWE");
	char *page = (char *)((uintptr_t)madvise & ~(PAGE - 1));
	CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == -1);
	past_the_symbols((struct calls){.madvise = madvise, .mremap = mremap, .mlock = mlock, .syscall = syscall});
}
