/* A copy that fails, here because a seccomp filter answers every pwrite with ENOSPC, and gives no 2 MB pages, into which is
   copied without it: memory is left as it was, and a clone is a plain one. seccomp(2). */
#include <linux/filter.h>
#include <linux/seccomp.h>

int main(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 25 /* MADV_COLLAPSE */, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof code / sizeof code[0], code};
	char *p = memory(4 * MB, 1);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	CHECK(call_seal() == 0);
	CHECK(sealed_bytes(ALL) == 0 && intact(p, 4 * MB, 1));
	IN_CLONE
		CHECK(intact(p, 4 * MB, 1));
}
