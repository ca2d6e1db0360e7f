/* Shadow stacks: the CPU writes them, and no program may. map_shadow_stack(2), Linux 6.6. */

#define SYS_MAP_SHADOW_STACK 453

int main(void)
{
	char *p = (char *)syscall(SYS_MAP_SHADOW_STACK, 0, 4 * MB, 0);
	if (p == MAP_FAILED)
		SKIP("this CPU or kernel has no user shadow stacks");
	CHECK(madvise(p, 4 * MB, MADV_POPULATE_READ) == 0);
	seal();
	CHECK(sealed_bytes(p, 4 * MB) == 0 && strstr(smaps(p, "VmFlags"), " ss "));
}
