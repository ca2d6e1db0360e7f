// The program that a job compiles.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	unsigned long limit = argc > 1 ? strtoul(argv[1], NULL, 10) : 100, found = 0;
	for (unsigned long n = 2; n <= limit; n++) {
		unsigned long divisor = 2;
		while (divisor * divisor <= n && n % divisor)
			divisor++;
		found += divisor * divisor > n;
	}
	printf("%lu primes up to %lu\n", found, limit);
	return 0;
}
