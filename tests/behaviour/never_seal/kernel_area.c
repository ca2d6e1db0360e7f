/* vdso and its kin: the kernel made them and knows their addresses. vdso(7). */
#include <sys/auxv.h>

int main(void)
{
	struct timespec now;
	const char *vdso = (const char *)getauxval(AT_SYSINFO_EHDR);
	if (vdso == NULL)
		SKIP("this kernel maps no vdso");
	seal();
	CHECK(sealed_bytes(vdso, PAGE) == 0 && memcmp(vdso, "\177ELF", 4) == 0);
	IN_CLONE
		CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec + now.tv_nsec > 0);
}
