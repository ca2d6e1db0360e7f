/* Open files: position and open flags are common to template and clones, so that whoever reads moves the others on. fork(2).
   clone: shares
   do: open the file again in the clone, or read and write by position (pread, pwrite) */

int main(void)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char four[4];
	CHECK(fd >= 0 && read(fd, four, 4) == 4);
	seal();
	IN_CLONE {
		CHECK(lseek(fd, 0, SEEK_CUR) == 4 && lseek(fd, 100, SEEK_SET) == 100);
		CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	}
	CHECK(lseek(fd, 0, SEEK_CUR) == 100 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
}
