/* Process id: getpid is right in a clone, but names, files and keys made of the template's id are the template's. getpid(2).
   clone: renew
   do: make them in the clone */

int main(void)
{
	pid_t template = getpid();
	char name[32];
	snprintf(name, sizeof name, "/tmp/mine.%d", template);
	seal();
	IN_CLONE {
		CHECK(getpid() != template && getppid() == template && gettid() == getpid());
		CHECK(atoi(strrchr(name, '.') + 1) == template);
	}
}
