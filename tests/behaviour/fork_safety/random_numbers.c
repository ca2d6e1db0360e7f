/* Random numbers: generators in user space (rand, random, drand48, and most libraries' own) go on with the template's state, so that all clones
   draw the same; getrandom(2) and arc4random differ. random(3), getrandom(2).
   clone: renew
   do: seed them in the clone from getrandom */
#include <sys/random.h>

int main(void)
{
	struct {
		long user;
		uint64_t kernel;
	} *drawn = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(drawn != MAP_FAILED);
	srandom(1988);
	seal();
	for (int clone = 0; clone < 2; clone++)
		IN_CLONE {
			drawn[clone].user = random();
			CHECK(getrandom(&drawn[clone].kernel, 8, 0) == 8);
		}
	CHECK(drawn[0].user == drawn[1].user && drawn[0].kernel != drawn[1].kernel);
}
