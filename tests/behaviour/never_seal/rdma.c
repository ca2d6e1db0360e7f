/* A process with RDMA objects: the device writes the pages it has registered. ibv_reg_mr(3). */
#include "../stand_in.h"

static const char *const devices[] = {"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", NULL};

int main(void)
{
	return refused_while_open(devices);
}
