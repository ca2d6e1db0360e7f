/* What the programs about on-demand fork share. They ask the kernel themselves or by the shim with FLASHFORK_ENGINE=odf; on a
   kernel that has none, or has it switched off, they are skipped. */
#ifndef ODF_H
#define ODF_H

#define PR_SET_ODF 0x4f444601
#define PR_GET_ODF 0x4f444602
#define CLONE_ODF 0x1000000000000000ull

/* Whether forks of this process are on demand; -1: the kernel knows of no such thing. */
static inline int is_on_demand(void)
{
	return prctl(PR_GET_ODF, 0, 0, 0, 0);
}

/* A counter of /proc/vmstat. */
static inline long counter(const char *name)
{
	return number_in("/proc/vmstat", name);
}

/* The shim was told to ask for forks on demand, and was granted them. */
static inline void must_be_on_demand(void)
{
	if (is_on_demand() == -1)
		SKIP("this kernel has no on-demand fork");
	if (is_on_demand() == 0)
		SKIP("on-demand fork is switched off (vm.on_demand_fork)");
}

/* As intact, for a part of what was filled. */
static inline int part_intact(const char *p, size_t from, size_t len, uint64_t seed)
{
	for (size_t i = from / 8; i < (from + len) / 8; i++)
		if (((const uint64_t *)p)[i] != pattern(i, seed))
			return 0;
	return 1;
}

/* Memory with page tables to share: 4 KB pages, filled. */
static inline char *tables(size_t len, uint64_t seed)
{
	char *p = map_alone(len, RW, MAP_PRIVATE);
	CHECK(p != NULL);
	CHECK(madvise(p, len, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	fill(p, len, seed);
	return p;
}

#endif
