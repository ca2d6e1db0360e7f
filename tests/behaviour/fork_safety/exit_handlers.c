/* Exit handlers: a clone that calls exit runs the template's atexit functions and destructors. atexit(3).
   clone: renew
   do: leave the clone with _exit, or make handlers look at getpid */

static int told[2];

static void handler(void)
{
	if (write(told[1], "x", 1) != 1)
		_exit(1);
}

int main(void)
{
	char c[4];
	CHECK(pipe(told) == 0 && atexit(handler) == 0);
	seal();
	for (int clone = 0; clone < 2; clone++)
		if (in_clone())
			exit(0);
	CHECK(read(told[0], c, sizeof c) == 2);
}
