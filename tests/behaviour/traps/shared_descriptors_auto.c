/* A process that was looked at before, for an automatic seal of its parent's that was not worth it, makes another that uses its
   table of descriptors: it is not sealed. Calls are followed only from the first seal on, so what a look found before that
   does not last.
   env: FLASHFORK_ENGINE=auto */
#include "../never_seal/shared_descriptors.c"
