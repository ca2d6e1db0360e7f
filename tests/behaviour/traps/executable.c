/* Memory with code in it, as a just-in-time compiler makes: it runs after the seal, in a clone and after an unseal, and the code can
   be replaced. mprotect(2); the memfd itself is not executable (MFD_NOEXEC_SEAL), which mappings don't mind. */

int main(void)
{
	static const unsigned char returns_42[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov eax, 42; ret */
	char *p = memory(4 * MB, 1);
	int (*code)(void) = (int (*)(void))(void *)p;
	memcpy(p, returns_42, sizeof returns_42);
	CHECK(mprotect(p, 4 * MB, RW | PROT_EXEC) == 0);
	seal();
	CHECK(all_sealed(p, 4 * MB) && code() == 42);
	IN_CLONE {
		CHECK(code() == 42);
		p[1] = 43;
		CHECK(code() == 43);
	}
	unseal();
	CHECK(code() == 42);
}
