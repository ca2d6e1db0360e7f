/* A hard RLIMIT_FSIZE: writing the memfd would fail and raise SIGXFSZ, and the limit can't be lifted. setrlimit(2).
   A soft one is lifted for the time of the seal: traps/file_size_soft_limit.c. */

int main(void)
{
	struct rlimit limit = {64 * MB, 64 * MB};
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	refused();
	CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == 64 * MB && limit.rlim_max == 64 * MB);
}
