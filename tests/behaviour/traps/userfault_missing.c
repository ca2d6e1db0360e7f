/* A userfaultfd by the system call, MISSING: 4 MB discarded are 1,024 faults for its owner. userfaultfd(2). */
#include "../userfault.h"

static int open_userfaultfd(void)
{
	return syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
}
