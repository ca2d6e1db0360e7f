/* vm.overcommit_memory=2: every private page counts as promised; the seal takes no more than is left, bytes and clones are right.
   proc_sys_vm(5). A setting of the whole machine: set by the program only where FLASHFORK_LAB says that the machine is ours. */

int main(void)
{
	FILE *mode = fopen("/proc/sys/vm/overcommit_memory", getenv("FLASHFORK_LAB") ? "w+e" : "re");
	CHECK(mode != NULL);
	if (getenv("FLASHFORK_LAB")) {
		CHECK(fputs("2", mode) > 0 && fflush(mode) == 0);
		rewind(mode);
	}
	if (fgetc(mode) != '2')
		SKIP("vm.overcommit_memory is not 2 here (the lab sets it)");
	char *p = memory(16 * MB, 1);
	CHECK(call_seal() == 0 && intact(p, 16 * MB, 1));
	CHECK(sealed_bytes(p, 16 * MB) % (2 * MB) == 0);
	IN_CLONE {
		CHECK(intact(p, 16 * MB, 1));
		fill(p, 16 * MB, 2);
	}
	CHECK(discard_zeros(p, 8 * MB));
}
