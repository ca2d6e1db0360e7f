/* A process with a GPU: drivers pin user pages and write them. Documentation/gpu/drm-uapi.rst. */
#include "../stand_in.h"

static const char *const devices[] = {"/dev/dri/card0", "/dev/dri/renderD128", "/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", NULL};

int main(void)
{
	return refused_while_open(devices);
}
