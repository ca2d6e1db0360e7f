/* Locks of open files: flock(2) and open file description locks belong to the open file, so that a clone holds them too and one unlock is for
   all. flock(2), fcntl(2).
   clone: shares
   do: open and lock the file in the clone */
#include <sys/file.h>

int main(void)
{
	int fd = open("lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600), other;
	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
	seal();
	other = open("lock", O_RDWR | O_CLOEXEC);
	CHECK(other >= 0 && flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
	IN_CLONE
		CHECK(flock(fd, LOCK_UN) == 0);
	CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
	return unlink("lock");
}
