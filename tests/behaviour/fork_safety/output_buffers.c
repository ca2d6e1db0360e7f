/* Output buffers: what stdio had not written at the fork, template and clone both write. stdio(3).
   clone: renew
   do: fflush(NULL) before the fork, or leave the clone with _exit */

int main(void)
{
	char text[64] = "";
	FILE *file = fopen("out", "w+e");
	CHECK(file != NULL);
	seal();
	CHECK(fputs("once ", file) >= 0);
	IN_CLONE
		CHECK(fclose(file) == 0);
	CHECK(fflush(file) == 0 && pread(fileno(file), text, sizeof text - 1, 0) == 10);
	CHECK(strcmp(text, "once once ") == 0);
	return unlink("out");
}
