/* A process with a virtual machine: the guest would go on in the pages before the seal. KVM_CREATE_VM,
   Documentation/virt/kvm/api.rst. */
#include <linux/kvm.h>

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		SKIP("no access to /dev/kvm");
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);
	refused();
	close(kvm);
	if (vm >= 0) {
		refused();
		close(vm);
	}
	seal();
}
