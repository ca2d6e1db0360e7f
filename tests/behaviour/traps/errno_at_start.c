/* A program finds errno 0 when it starts: what the shim looks at before leaves nothing there. errno(3), C11 7.5. */

int main(void)
{
	int first = errno;
	char *p = memory(4 * MB, 1);
	seal();
	CHECK(first == 0 && all_sealed(p, 4 * MB));
}
