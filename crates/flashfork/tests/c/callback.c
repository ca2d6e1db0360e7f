/* The callback gets every mapping once, in order, with sums that agree with the report. */
#include "check.h"

struct seen {
	const char *end;
	uint64_t sealed, kept;
	unsigned mappings, stacks;
};

static void note(const struct flashfork_vma_report *vma, void *data)
{
	struct seen *seen = (struct seen *)data;

	CHECK((const char *)vma->start >= seen->end && vma->end > vma->start);
	CHECK(!vma->reason == !vma->explanation);
	seen->end = (const char *)vma->end;
	seen->sealed += vma->sealed_bytes;
	seen->kept += vma->kept_bytes;
	seen->mappings++;
	if (!strcmp(vma->name, "[stack]")) {
		CHECK(!strcmp(vma->reason, "stack") && strstr(vma->explanation, "stack"));
		seen->stacks++;
	}
	free(malloc(100000)); /* the seal is over: anything is allowed */
}

int main(void)
{
	struct seen seen = {0};
	struct flashfork_seal_options options = {0};
	struct flashfork_seal_report report;
	uint64_t first;

	warm();
	options.each_vma = note;
	options.each_vma_data = &seen;
	CHECK(flashfork_seal(&options, &report) == 0);
	CHECK(seen.sealed == report.sealed_bytes && seen.sealed > 0 && seen.stacks == 1 && seen.mappings > 10);
	first = seen.sealed;
	memset(&seen, 0, sizeof seen);
	CHECK(flashfork_seal(&options, &report) == 0);
	CHECK(seen.sealed == report.sealed_bytes && seen.sealed + seen.kept >= first);
}
