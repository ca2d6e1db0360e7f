/* Code with a system call of its own that becomes executable by other ways than mprotect and PROT_EXEC: with a protection key or
   the lack of one, as a shared memory segment, and because reading implies executing. pkey_mprotect(2), shmop(2), personality(2). */
#include "../own_calls.h"
#include <sys/personality.h>
#include <sys/shm.h>

static char *with_key(int key)
{
	char *code = mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(code != MAP_FAILED);
	memcpy(code, discards, sizeof discards);
	return syscall(SYS_pkey_mprotect, code, PAGE, PROT_READ | PROT_EXEC, key) == 0 ? code : NULL;
}

static char *without_a_key(void)
{
	return with_key(-1);
}

static char *with_a_key(void)
{
	int key = (int)syscall(SYS_pkey_alloc, 0, 0);
	return key > 0 ? with_key(key) : NULL;
}

static char *segment(void)
{
	int id = shmget(IPC_PRIVATE, PAGE, 0700 | IPC_CREAT);
	char *written = shmat(id, NULL, 0);
	CHECK(id >= 0 && written != (void *)-1);
	memcpy(written, discards, sizeof discards);
	char *code = shmat(id, NULL, SHM_EXEC | SHM_RDONLY);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && code != (void *)-1);
	return code;
}

static char *readable_file(void)
{
	CHECK(personality(personality(~0U) | READ_IMPLIES_EXEC) != -1);
	int fd = memfd_create("code", 0);
	CHECK(fd >= 0 && write(fd, discards, sizeof discards) == sizeof discards);
	char *code = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(code != MAP_FAILED && close(fd) == 0);
	return code;
}

static char *readable_memory(void)
{
	CHECK(personality(personality(~0U) | READ_IMPLIES_EXEC) != -1);
	char *code = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(code != MAP_FAILED && mprotect(code, PAGE, RW) == 0);
	memcpy(code, discards, sizeof discards);
	CHECK(mprotect(code, PAGE, PROT_READ) == 0);
	return code;
}

int main(void)
{
	char *(*ways[])(void) = {without_a_key, with_a_key, segment, readable_file, readable_memory};
	for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
		IN_CLONE {
			char *p = memory_at_place();
			seal();
			CHECK(all_sealed(p, PLACE_LEN));
			char *code = ways[way]();
			if (code) {
				((void (*)(void))(void *)code)();
				for (size_t at = 0; at < PLACE_LEN; at += PAGE)
					CHECK(p[at] == 0);
			}
		}
	}
}
