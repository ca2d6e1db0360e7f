/* A protection key for sealed memory, then a discard: whoever has no right to the key still has none. pkeys(7). */
#include "../beside_plain.h"

static int key;

static void note_access(char *p)
{
	pid_t pid = forked();
	if (pid == 0) {
		CHECK(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
		_exit(*(volatile char *)p);
	}
	note(wait_for(pid));
}

static void with(char *p)
{
	NOTE_CALL(pkey_mprotect(p, 2 * MB, PROT_READ | PROT_WRITE, key));
	note_access(p);
	note_discard(p, MB, MADV_DONTNEED);
	note(atol(smaps(p, "ProtectionKey")));
	note_access(p);
	note_access(p + MB);
	note_access(p + 3 * MB);
	NOTE_CALL(syscall(SYS_pkey_mprotect, p, 4 * MB, PROT_READ | PROT_WRITE, key));
	note_discard(p, 4 * MB, MADV_DONTNEED);
	note_access(p + 3 * MB);
	NOTE_CALL(pkey_mprotect(p, 4 * MB, PROT_READ | PROT_WRITE, 0));
	note_access(p);
}

int main(void)
{
	key = pkey_alloc(0, 0);
	if (key < 0)
		SKIP("no protection keys on this machine");
	return same_as_plain(with);
}
