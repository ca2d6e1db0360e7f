/* Descriptor numbers: each process has its own table, and closing is for itself. fork(2).
   clone: own
   do: nothing */

int main(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	seal();
	IN_CLONE
		CHECK(close(fd) == 0 && fcntl(fd, F_GETFD) == -1);
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
}
