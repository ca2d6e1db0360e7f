/* A socket that is opened after a seal, with which memory can be registered for a device to write: all memory is anonymous before.
   Documentation/networking/af_xdp.rst. */
#include <linux/if_xdp.h>

int main(void)
{
	char *p = memory(4 * MB, 1);
	seal();
	int any = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(any >= 0 && all_sealed(p, 4 * MB));
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	CHECK(sealed_bytes(ALL) == 0 && intact(p, 4 * MB, 1));
	if (fd < 0)
		SKIP("no AF_XDP socket to be had (needs CAP_NET_RAW and a kernel with XDP sockets)");
	struct xdp_umem_reg umem = {.addr = (uintptr_t)p, .len = 4 * MB, .chunk_size = PAGE};
	CHECK(setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem) == 0 || errno == ENOBUFS || errno == ENOMEM);
	CHECK(call_seal() == -1 && intact(p, 4 * MB, 1));
}
