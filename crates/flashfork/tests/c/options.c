/* Wrong options are refused before anything is done; good ones do what they say. */
#include "check.h"

int main(void)
{
	struct flashfork_seal_options options = {0};
	struct flashfork_seal_report report;
	uint64_t bytes = 0;
	unsigned char *p = warm();

	options.pages = 7;
	CHECK(flashfork_seal(&options, NULL) == -1 && errno == EINVAL);
	CHECK(strstr(flashfork_last_error(), "FLASHFORK_PAGES"));
	options.pages = FLASHFORK_PAGES_SMALL;
	options.reserved[1] = 1;
	CHECK(flashfork_seal(&options, NULL) == -1 && errno == EINVAL);
	options.reserved[1] = 0;
	CHECK(flashfork_seal(&options, &report) == 0);
	CHECK(report.sealed_bytes >= 14 << 20 && report.huge_bytes == 0 && report.generation == 1);
	CHECK(report.elapsed_ns > 0 && report.peak_extra_bytes > 0 && report.write_sealed == 1);
	CHECK(flashfork_unseal(&bytes) == 0 && bytes == report.sealed_bytes);
	CHECK(flashfork_unseal(NULL) == 0);
	CHECK(flashfork_stats(NULL) == -1 && errno == EINVAL);
	CHECK(p[1 << 20] == 7);
}
