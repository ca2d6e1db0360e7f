/* A process with an AF_XDP socket: the kernel writes packets into its registered memory.
   Documentation/networking/af_xdp.rst. */

int main(void)
{
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		SKIP("no AF_XDP socket to be had (needs CAP_NET_RAW and a kernel with XDP sockets)");
	refused();
	close(fd);
	seal();
}
