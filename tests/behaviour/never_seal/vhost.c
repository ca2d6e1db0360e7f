/* A process with a vhost device: a kernel thread writes the guest's memory. Linux drivers/vhost. */
#include "../stand_in.h"

int main(void)
{
    return refused_while_open("/dev", "/dev/vhost-net");
}
