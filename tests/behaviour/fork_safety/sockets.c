/* Connections and pipes: what one process reads from a common socket, pipe, eventfd or timerfd the others don't get, and the peer sees the end
   only when the last of them has closed it. fork(2).
   clone: shares
   do: connect in the clone; close in the clone what belongs to the template */

int main(void)
{
	int ends[2];
	char c;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
	seal();
	CHECK(write(ends[0], "ab", 2) == 2);
	IN_CLONE
		CHECK(read(ends[1], &c, 1) == 1 && c == 'a');
	CHECK(read(ends[1], &c, 1) == 1 && c == 'b');
	CHECK(read(ends[1], &c, 1) == -1 && errno == EAGAIN);
}
