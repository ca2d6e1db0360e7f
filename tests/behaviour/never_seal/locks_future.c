/* mlockall(MCL_FUTURE): every new mapping would be locked, and locking private memory copies it at once. mlockall(2). */

int main(void)
{
	char *room = NULL;
	if (mlockall(MCL_FUTURE) != 0 || (room = map_alone(16 * MB, RW, MAP_PRIVATE)) == NULL)
		SKIP("mlockall is not allowed here, or for too little memory (RLIMIT_MEMLOCK)");
	munmap(room, 16 * MB);
	refused();
	CHECK(munlockall() == 0);
	seal();
}
