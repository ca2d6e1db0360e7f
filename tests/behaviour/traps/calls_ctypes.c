/* A foreign function of Python's ctypes takes libc's madvise and mremap from libc's own handle. ctypes.CDLL("libc.so.6"). */

static const char script[] =
	"import ctypes, mmap, sys\n"
	"shim, libc = ctypes.CDLL(None), ctypes.CDLL('libc.so.6', use_errno=True)\n"
	"MB = 1 << 20\n"
	"libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p\n"
	"libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]\n"
	"libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n"
	"libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]\n"
	"a, b = (libc.mmap(None, 8 * MB, 3, 0x22, -1, 0) for _ in range(2))\n"
	"ctypes.memset(a, 1, 8 * MB), ctypes.memset(b, 2, 8 * MB)\n"
	"assert shim.flashfork_preload_seal() == 0\n"
	"assert '/memfd:flashfork:' in open('/proc/self/maps').read()\n"
	"assert libc.madvise(a, 8 * MB, 4) == 0\n"
	"assert ctypes.string_at(a, 8 * MB) == bytes(8 * MB)\n"
	"assert libc.mremap(b, 8 * MB, 4 * MB, 0) == b\n"
	"b = libc.mremap(b, 4 * MB, 8 * MB, 1)\n"
	"assert ctypes.string_at(b, 8 * MB) == 4 * MB * b'\\2' + bytes(4 * MB)\n";

int main(void)
{
	pid_t pid = forked();
	if (pid == 0) {
		execlp("python3", "python3", "-c", script, (char *)NULL);
		_exit(77);
	}
	int status = wait_for(pid);
	if (status == 77)
		SKIP("python3 is not installed");
	CHECK(status == 0);
}
