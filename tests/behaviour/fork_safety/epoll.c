/* Event loops: an epoll set is one for all, so that what a clone adds or removes is added or removed in the template. epoll(7).
   clone: shares
   do: make a new epoll set in the clone (libuv: uv_loop_fork, libevent: event_reinit) */
#include <sys/epoll.h>
#include <sys/eventfd.h>

int main(void)
{
	int set = epoll_create1(EPOLL_CLOEXEC), event = eventfd(1, EFD_CLOEXEC);
	struct epoll_event interest = {.events = EPOLLIN}, found;
	CHECK(set >= 0 && event >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, event, &interest) == 0);
	seal();
	CHECK(epoll_wait(set, &found, 1, 0) == 1);
	IN_CLONE
		CHECK(epoll_ctl(set, EPOLL_CTL_DEL, event, NULL) == 0);
	CHECK(epoll_wait(set, &found, 1, 0) == 0);
}
