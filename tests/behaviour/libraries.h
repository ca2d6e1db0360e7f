/* Shared objects of the program's own, each with a page that is relocated and read-only from then on (relro), and some
   pages of data. elf(5), ld.so(8).
   `cflags: -ldl` is needed. */
#ifndef LIBRARIES_H
#define LIBRARIES_H

#include <elf.h>
#include <link.h>

/* More than enough for their data to be sealed. */
#define LIBRARIES 20
#define DATA_PAGES 3ul
#define DATA_LEN (DATA_PAGES * PAGE)

struct library {
	char path[32];
	void *handle;
	char *base;
};

/* What its file holds where its data is. */
#define FILE_SEED 1000

static inline char *relro(const struct library *l)
{
	return l->base + PAGE;
}

static inline char *data(const struct library *l)
{
	return l->base + 2 * PAGE;
}

/* The file of one: its first page is what the loader reads, the second is relocated, then comes the data. */
static inline void write_library(const char *path, uint64_t number)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr parts[4];
		Elf64_Sym symbols[1];
		Elf64_Rela relocations[1];
		Elf32_Word hash[4];
		char strings[8];
	} o = {0};
	struct {
		Elf64_Dyn dynamic[9];
		uint64_t relocated;
	} r = {0};
	_Static_assert(sizeof o < PAGE && sizeof r < PAGE, "a page each");
	size_t at = PAGE + ((char *)&r.relocated - (char *)&r);
	memcpy(o.head.e_ident, "\177ELF\2\1\1", 7);
	o.head.e_type = ET_DYN;
	o.head.e_machine = EM_X86_64;
	o.head.e_version = EV_CURRENT;
	o.head.e_phoff = (char *)o.parts - (char *)&o;
	o.head.e_ehsize = sizeof o.head;
	o.head.e_phentsize = sizeof o.parts[0];
	o.head.e_phnum = 4;
	o.parts[0] = (Elf64_Phdr){PT_LOAD, PF_R, 0, 0, 0, sizeof o, sizeof o, PAGE};
	o.parts[1] = (Elf64_Phdr){PT_LOAD, PF_R | PF_W, PAGE, PAGE, PAGE, PAGE + DATA_LEN, PAGE + DATA_LEN, PAGE};
	o.parts[2] = (Elf64_Phdr){PT_DYNAMIC, PF_R | PF_W, PAGE, PAGE, PAGE, sizeof r.dynamic, sizeof r.dynamic, 8};
	o.parts[3] = (Elf64_Phdr){PT_GNU_RELRO, PF_R, PAGE, PAGE, PAGE, PAGE, PAGE, 1};
	o.relocations[0] = (Elf64_Rela){at, ELF64_R_INFO(0, R_X86_64_RELATIVE), (Elf64_Sxword)number};
	o.hash[0] = 1;
	o.hash[1] = 1;
	r.dynamic[0] = (Elf64_Dyn){DT_HASH, {(size_t)((char *)o.hash - (char *)&o)}};
	r.dynamic[1] = (Elf64_Dyn){DT_STRTAB, {(size_t)(o.strings - (char *)&o)}};
	r.dynamic[2] = (Elf64_Dyn){DT_SYMTAB, {(size_t)((char *)o.symbols - (char *)&o)}};
	r.dynamic[3] = (Elf64_Dyn){DT_STRSZ, {1}};
	r.dynamic[4] = (Elf64_Dyn){DT_SYMENT, {sizeof o.symbols[0]}};
	r.dynamic[5] = (Elf64_Dyn){DT_RELA, {(size_t)((char *)o.relocations - (char *)&o)}};
	r.dynamic[6] = (Elf64_Dyn){DT_RELASZ, {sizeof o.relocations}};
	r.dynamic[7] = (Elf64_Dyn){DT_RELAENT, {sizeof o.relocations[0]}};
	static char pages[2 * PAGE + DATA_LEN];
	memset(pages, 0, sizeof pages);
	memcpy(pages, &o, sizeof o);
	memcpy(pages + PAGE, &r, sizeof r);
	fill(pages + 2 * PAGE, DATA_LEN, FILE_SEED + number);
	write_file(path, pages, sizeof pages);
}

/* Whether the second page is as the loader left it. */
static inline int relocated(const struct library *l, uint64_t number)
{
	return *(uint64_t *)(relro(l) + 9 * sizeof(Elf64_Dyn)) == (uint64_t)l->base + number;
}

static inline struct library load_library(uint64_t number)
{
	struct library l;
	struct link_map *map;
	snprintf(l.path, sizeof l.path, "./library%d.so", (int)number);
	write_library(l.path, number);
	l.handle = dlopen(l.path, RTLD_NOW);
	if (l.handle == NULL || dlinfo(l.handle, RTLD_DI_LINKMAP, &map) != 0)
		SKIP("%s", dlerror());
	l.base = (char *)map->l_addr;
	CHECK(relocated(&l, number) && intact(data(&l), DATA_LEN, FILE_SEED + number));
	return l;
}

/* Loads all, and writes to all of their data. What lies close to a thread's own data is not sealed: others are loaded. */
static inline struct library *load_libraries(void)
{
	static struct library all[LIBRARIES];
	size_t here = (size_t)pthread_self();
	for (int i = 0, close = 0; i < LIBRARIES; i++) {
		all[i] = load_library((uint64_t)i);
		/* Its place is taken before it goes there again. */
		while ((size_t)all[i].base + MB > here && (size_t)all[i].base < here + MB) {
			char *base = all[i].base;
			CHECK(close++ < 1000 && dlclose(all[i].handle) == 0);
			CHECK(mmap(base, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == base);
			all[i] = load_library((uint64_t)i);
		}
		fill(data(&all[i]), DATA_LEN, (uint64_t)i);
	}
	return all;
}

static inline int is_sealed(const struct library *l)
{
	return all_sealed(relro(l), PAGE + DATA_LEN);
}

static inline int as_written(const struct library *l, uint64_t number)
{
	return relocated(l, number) && intact(data(l), DATA_LEN, number);
}

/* Whether a part of its data is as in the file. */
static inline int as_in_file(const struct library *l, uint64_t number, size_t from, size_t len)
{
	static uint64_t file[DATA_LEN / 8];
	fill(file, DATA_LEN, FILE_SEED + number);
	return memcmp(data(l) + from, (char *)file + from, len) == 0;
}

/* The line of maps about the mapping that holds `p`, without its addresses. */
static inline const char *mapping(const void *p)
{
	static char line[8192];
	size_t start, end;
	FILE *maps = fopen("/proc/thread-self/maps", "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%zx-%zx", &start, &end) == 2 && start <= (size_t)p && (size_t)p < end) {
			fclose(maps);
			return strchr(line, ' ');
		}
	CHECK(!"mapped");
	return NULL;
}

#endif
