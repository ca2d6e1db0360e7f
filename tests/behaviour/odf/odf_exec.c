/* exec ends forks on demand: a program started with the shim asks anew, one without it does not.
   env: FLASHFORK_ENGINE=odf */
#include "odf.h"

int main(int count, char **arguments)
{
	if (count == 2)
		return is_on_demand() == atoi(arguments[1]) ? 0 : 1;
	must_be_on_demand();
	for (int with_shim = 0; with_shim < 2; with_shim++) {
		pid_t pid = forked();
		if (pid == 0) {
			if (!with_shim)
				unsetenv("LD_PRELOAD");
			execl("/proc/self/exe", arguments[0], with_shim ? "1" : "0", NULL);
			_exit(2);
		}
		CHECK(wait_for(pid) == 0);
	}
}
