/* posix_spawn after a seal, with a file action. posix_spawn(3). */
#include <spawn.h>

int main(void)
{
	char *p = memory(4 * MB, 1), said[16] = "", *args[] = {"sh", "-c", "echo spawned", NULL};
	int channel[2];
	pid_t pid;
	posix_spawn_file_actions_t actions;
	seal();
	CHECK(pipe(channel) == 0 && posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, channel[1], 1) == 0);
	CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, args, environ) == 0 && wait_for(pid) == 0);
	CHECK(read(channel[0], said, sizeof said) == 8 && strcmp(said, "spawned\n") == 0 && intact(p, 4 * MB, 1));
}
