/* System calls that no libc makes, and a shared object that makes them. */
#ifndef OWN_CALLS_H
#define OWN_CALLS_H

#include <elf.h>

/* madvise(2) by an instruction of the program's own. */
__attribute__((noinline, unused)) static long own_madvise(void *addr, size_t len, long advice)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(28L), "D"(addr), "S"(len), "d"(advice) : "rcx", "r11", "memory");
	return result;
}

/* Where the object's code discards memory, and how much. */
#define PLACE ((char *)0x100000000000)
#define PLACE_LEN (4 * MB)

/* madvise(PLACE, PLACE_LEN, MADV_DONTNEED), as machine code. */
static const unsigned char discards[] = {
	0x48, 0xbf, 0, 0, 0, 0, 0, 0x10, 0, 0, /* mov $PLACE,%rdi */
	0xbe, 0, 0, 0x40, 0,                   /* mov $PLACE_LEN,%esi */
	0xba, 4, 0, 0, 0,                      /* mov $MADV_DONTNEED,%edx */
	0xb8, 28, 0, 0, 0,                     /* mov $__NR_madvise,%eax */
	0x0f, 0x05,                            /* syscall */
	0xc3,                                  /* ret */
};

/* A page of code, and nothing else. */
static inline void write_code(const char *path)
{
	char page[PAGE] = {0};
	memcpy(page, discards, sizeof discards);
	write_file(path, page, PAGE);
}

/* A shared object whose constructor is this code. elf(5). */
static inline void write_object(const char *path)
{
	struct {
		Elf64_Ehdr head;
		Elf64_Phdr parts[3];
		Elf64_Dyn dynamic[8];
		Elf64_Sym symbols[1];
		Elf32_Word hash[4];
		char strings[8];
		unsigned char code[sizeof discards];
	} o = {0};
	_Static_assert(sizeof o < PAGE, "one page");
	size_t code = (char *)o.code - (char *)&o, dynamic = (char *)o.dynamic - (char *)&o;
	memcpy(o.head.e_ident, "\177ELF\2\1\1", 7);
	o.head.e_type = ET_DYN;
	o.head.e_machine = EM_X86_64;
	o.head.e_version = EV_CURRENT;
	o.head.e_phoff = (char *)o.parts - (char *)&o;
	o.head.e_ehsize = sizeof o.head;
	o.head.e_phentsize = sizeof o.parts[0];
	o.head.e_phnum = 3;
	o.parts[0] = (Elf64_Phdr){PT_LOAD, PF_R | PF_X, 0, 0, 0, sizeof o, sizeof o, PAGE};
	/* The loader writes into what the dynamic section lies in. */
	o.parts[1] = (Elf64_Phdr){PT_LOAD, PF_R | PF_W, 0, PAGE, PAGE, sizeof o, sizeof o, PAGE};
	o.parts[2] = (Elf64_Phdr){PT_DYNAMIC, PF_R | PF_W, dynamic, PAGE + dynamic, PAGE + dynamic, sizeof o.dynamic,
	                          sizeof o.dynamic, 8};
	o.dynamic[0] = (Elf64_Dyn){DT_HASH, {(char *)o.hash - (char *)&o}};
	o.dynamic[1] = (Elf64_Dyn){DT_STRTAB, {(char *)o.strings - (char *)&o}};
	o.dynamic[2] = (Elf64_Dyn){DT_SYMTAB, {(char *)o.symbols - (char *)&o}};
	o.dynamic[3] = (Elf64_Dyn){DT_STRSZ, {1}};
	o.dynamic[4] = (Elf64_Dyn){DT_SYMENT, {sizeof o.symbols[0]}};
	o.dynamic[5] = (Elf64_Dyn){DT_INIT, {code}};
	o.dynamic[6] = (Elf64_Dyn){DT_NULL, {0}};
	o.hash[0] = 1;
	o.hash[1] = 1;
	memcpy(o.code, discards, sizeof discards);
	char page[PAGE] = {0};
	memcpy(page, &o, sizeof o);
	write_file(path, page, PAGE);
}

/* Ordinary memory where the object's code discards it. */
static inline char *memory_at_place(void)
{
	char *p = mmap(PLACE, PLACE_LEN, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(p == PLACE);
	fill(p, PLACE_LEN, 7);
	return p;
}

#endif
