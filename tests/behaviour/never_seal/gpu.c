/* A process with a GPU: drivers pin user pages and write them. Documentation/gpu/drm-uapi.rst. */
#include "../stand_in.h"

int main(void)
{
    return refused_while_open("/dev/dri", "/dev/dri/renderD128");
}
