/* Another library's `prctl`, loaded behind the shim, is called as the program's others are, and the call does what it does. The library
   is this program's own source, compiled by the C compiler of the machine. prctl(2).
   cflags: -DMAIN -ldl */
#ifdef MAIN
int main(int argc, char **argv)
{
	(void)argc;
	const char *calls = getenv("CALLS");
	if (calls == NULL) {
		const char *cc = getenv("CC") ? getenv("CC") : "cc", *preload = getenv("LD_PRELOAD");
		char here[4096], command[16384], both[8192];
		CHECK(preload != NULL && getcwd(here, sizeof here) != NULL);
		snprintf(command, sizeof command, "LD_PRELOAD= %s -shared -fPIC -o '%s/wrapper.so' '%s' -ldl", cc, here, __FILE__);
		int made = system(command);
		if (WIFEXITED(made) && WEXITSTATUS(made) == 127)
			SKIP("there is no C compiler here");
		CHECK(made == 0);
		snprintf(both, sizeof both, "%s:%s/wrapper.so", preload, here);
		CHECK(setenv("LD_PRELOAD", both, 1) == 0 && setenv("CALLS", "0", 1) == 0);
		execv("/proc/self/exe", argv);
		CHECK(!"the program starts again");
	}
	char name[16] = "";
	for (int sealed = 0; sealed < 2; sealed++) {
		CHECK(setenv("CALLS", "0", 1) == 0);
		CHECK(prctl(PR_SET_NAME, sealed ? "sealed" : "plain") == 0);
		CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, sealed ? "sealed" : "plain") == 0);
		CHECK(prctl(-1) == -1 && errno == EINVAL);
		CHECK(strcmp(getenv("CALLS"), "3") == 0);
		seal();
	}
}
#else
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>

int prctl(int option, ...)
{
	va_list list;
	va_start(list, option);
	unsigned long a = va_arg(list, unsigned long), b = va_arg(list, unsigned long), c = va_arg(list, unsigned long),
	              d = va_arg(list, unsigned long);
	va_end(list);
	char count[2] = {(char)(getenv("CALLS")[0] + 1), 0};
	setenv("CALLS", count, 1);
	return ((int (*)(int, ...))dlsym(RTLD_NEXT, "prctl"))(option, a, b, c, d);
}
#endif
