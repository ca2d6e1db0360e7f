/* A process with a vhost device: a kernel thread writes the guest's memory. Linux drivers/vhost. */
#include "../stand_in.h"

static const char *const devices[] = {"/dev/vhost-net", "/dev/vhost-vsock", NULL};

int main(void)
{
	return refused_while_open(devices);
}
