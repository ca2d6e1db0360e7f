/* Record locks: POSIX locks (fcntl F_SETLK, lockf) are the template's alone. fcntl(2).
   clone: missing
   do: lock in the clone */

int main(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = open("lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
	seal();
	IN_CLONE
		CHECK(fcntl(fd, F_SETLK, &lock) == -1 && (errno == EAGAIN || errno == EACCES));
	return unlink("lock");
}
