// The program that a job compiles.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    size_t limit = argc > 1 ? strtoul(argv[1], NULL, 10) : 100, found = 0;
    char *composite = malloc(limit + 1);
    if (!composite)
        return 1;
    memset(composite, 0, limit + 1);
    for (size_t n = 2; n <= limit; n++) {
        if (composite[n])
            continue;
        found++;
        for (size_t m = n * n; m <= limit; m += n)
            composite[m] = 1;
    }
    printf("%zu primes up to %zu\n", found, limit);
    free(composite);
    return 0;
}
