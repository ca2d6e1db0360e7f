/* A process with a VFIO container: the device writes the pages it has pinned. Documentation/driver-api/vfio.rst. */
#include "../stand_in.h"

static const char *const devices[] = {"/dev/vfio/vfio", "/dev/vfio/12", "/dev/iommu", NULL};

int main(void)
{
	return refused_while_open(devices);
}
