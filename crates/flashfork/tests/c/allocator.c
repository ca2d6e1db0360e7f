/* Tells what a seal says: "sealed", or errno and the text. With MARKER: as if Go's runtime were linked in. */
#include "check.h"

#ifdef MARKER
void _cgo_topofstack(void);
void _cgo_topofstack(void)
{
}
#endif

int main(int argc, char **argv)
{
	struct flashfork_seal_options options = {0};

	warm();
	options.trust_allocator = argc > 1 && !strcmp(argv[1], "trust");
	if (flashfork_seal(&options, NULL) == 0)
		puts("sealed");
	else
		printf("%s: %s\n", errno == EOPNOTSUPP ? "EOPNOTSUPP" : strerror(errno), flashfork_last_error());
}
