/* system and popen after a seal. system(3), popen(3). */

int main(void)
{
	char *p = memory(4 * MB, 1), said[16] = "";
	seal();
	CHECK(WEXITSTATUS(system("exit 9")) == 9);
	FILE *pipe = popen("echo hello", "r");
	CHECK(pipe != NULL && fgets(said, sizeof said, pipe) && pclose(pipe) == 0);
	CHECK(strcmp(said, "hello\n") == 0 && intact(p, 4 * MB, 1));
}
