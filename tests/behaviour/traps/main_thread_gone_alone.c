/* The main thread has ended and one other goes on: that is a process with one thread. Its memory is sealed, wiped in clones if it
   asks for that, guarded, and made anonymous again, though threads may not be stopped. pthread_exit(3). */
#include "../behaviour.h"
#include <pthread.h>

#define LEN (8 * MB)
static char *p;
static pthread_t main_thread;

static void *rest_of_the_program(void *unused)
{
    CHECK(pthread_join(main_thread, NULL) == 0);
    seal();
    /* What lies near the stack stays as it is. */
    char *half = p + LEN / 2;
    CHECK(sealed_bytes(half, LEN / 2) == LEN / 2 && intact(p, LEN, 1));
    CHECK(madvise(half, 2 * MB, MADV_WIPEONFORK) == 0 && sealed_bytes(half, 2 * MB) == 0);
    if (in_clone()) {
        CHECK(intact(p, LEN / 2, 1) && zeros(half, 2 * MB));
        _exit(0);
    }
    unseal();
    CHECK(intact(p, LEN, 1));
    _exit(0);
    return unused;
}

int main(void)
{
    pthread_t other;
    p = memory(LEN, 1);
    main_thread = pthread_self();
    CHECK(pthread_create(&other, NULL, rest_of_the_program, NULL) == 0);
    pthread_exit(NULL);
}
