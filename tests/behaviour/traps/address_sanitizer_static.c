/* The same with AddressSanitizer's runtime in the program itself, as clang links it: its system calls are followed there, too.
   cflags: -fsanitize=address -static-libasan
   env: ASAN_OPTIONS=verify_asan_link_order=0:quarantine_size_mb=0:thread_local_quarantine_size_kb=0:max_free_fill_size=0 */
#include "address_sanitizer_release.c"
