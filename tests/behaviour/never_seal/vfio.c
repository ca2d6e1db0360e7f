/* A process with a VFIO container: the device writes the pages it has pinned. Documentation/driver-api/vfio.rst. */
#include "../stand_in.h"

int main(void)
{
    return refused_while_open("/dev/vfio", "/dev/vfio/vfio");
}
