/* A process with RDMA objects: the device writes the pages it has registered. ibv_reg_mr(3). */
#include "../stand_in.h"

int main(void)
{
    return refused_while_open("/dev/infiniband", "/dev/infiniband/uverbs0");
}
