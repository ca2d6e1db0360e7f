/* Without `flashfork warm` there is nothing to wait for, and nothing changes. */
#include "check.h"

int main(int argc, char **argv)
{
	int count = argc;
	char **words = argv;

	CHECK(flashfork_ready(&argc, &argv) == 0);
	CHECK(argc == count && argv == words);
	CHECK(flashfork_ready(NULL, NULL) == 0);
}
