/* A seccomp filter that answers one system call with an action, and lets the others be. seccomp(2). */
#ifndef FILTER_H
#define FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>

/* Puts the calling thread under it, by prctl(2) or by seccomp(2)'s number. */
static void enter(int call, unsigned action, int by_number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK((by_number ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
	                 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) == 0);
}

#endif
