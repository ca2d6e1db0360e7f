//! Open files are each clone's own, also those with no name.

use crate::{
	place::{assert_says, line},
	programs::Program,
};

#[test]
fn deleted_files_are_each_clones_own() {
	Program::new(
		r#"
static void show(const char *what, int fd) {
	struct stat s; fstat(fd, &s); char b[64]; ssize_t n = pread(fd, b, 63, 0); b[n > 0 ? n : 0] = 0;
	printf("%s: %o %ld %ld %ld %d %x %ld '%s'\n", what, s.st_mode, (long)s.st_nlink, (long)s.st_size, (long)s.st_blocks, s.st_uid, fcntl(fd, F_GETFL) & ~(O_TMPFILE | O_DIRECTORY), (long)lseek(fd, 0, SEEK_CUR), b);
}
int main(void) {
	FILE *t = tmpfile(); fputs("hello from tmpfile", t); fflush(t); fseek(t, 6, SEEK_SET);
	char n[] = "/tmp/ff-XXXXXX"; int a = mkstemp(n), b = open(n, O_RDONLY), c = open(n, O_WRONLY | O_APPEND); unlink(n);
	write(a, "shared", 6); lseek(b, 2, SEEK_SET); fchmod(a, 0400);
	int d = dup(a);
	char n2[] = "/tmp/ff-dir-XXXXXX"; if (!mkdtemp(n2)) { perror("mkdtemp"); return 1; } char f[100]; sprintf(f, "%s/file", n2); int e = open(f, O_CREAT | O_WRONLY | O_TRUNC, geteuid() ? 0600 : 0200); unlink(f); rmdir(n2);
	if (e < 0 || write(e, "gone", 4) != 4 || (!geteuid() && fchmod(e, 0))) { perror(f); return 1; }
	int h = open("/tmp", O_TMPFILE | O_RDWR, 0640); ftruncate(h, 1 << 30); pwrite(h, "far", 3, 500 << 20); lseek(h, 7, SEEK_SET);
	int shm = open("/dev/shm/ff-test", O_CREAT | O_RDWR, 0600); unlink("/dev/shm/ff-test"); write(shm, "shm", 3);
	another();
	READY;
	show("tmpfile", fileno(t)); char l[64]; fgets(l, 64, t); puts(l);
	show("a", a); show("b", b); show("c", c); show("d", d); show("e", e); show("h", h); show("shm", shm);
	write(c, "+more", 5); char x[64]; int k = read(b, x, 64); printf("%.*s\n", k, x); write(d, "!", 1); show("a", a);
	write(e, "xx", 2); show("e", e); char m[4] = {0}; pread(h, m, 3, 500 << 20); printf("%s\n", m);
	write(shm, "mine", 4); show("shm", shm);
	sprintf(f, "/tmp/ff-linked-%d", getpid()); sprintf(x, "/proc/self/fd/%d", h); printf("link %d", linkat(AT_FDCWD, x, AT_FDCWD, f, AT_SYMLINK_FOLLOW)); unlink(f);
	sprintf(x, "/proc/self/fd/%d", a); printf(" %d\n", linkat(AT_FDCWD, x, AT_FDCWD, f, AT_SYMLINK_FOLLOW));
}
"#,
	)
	.is_the_same_in_clones(4);
}

#[test]
fn a_deleted_file_keeps_its_time() {
	Program::new(
		r#"
int main(void) {
	FILE *t = tmpfile(); fputs("text", t); fflush(t); struct timespec times[2] = {{1000, 1}, {2000, 2}}; futimens(fileno(t), times);
	another();
	READY;
	struct stat s; fstat(fileno(t), &s); printf("%ld %ld %ld %ld\n", s.st_atim.tv_sec, s.st_atim.tv_nsec, s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
}
"#,
	)
	.is_the_same_in_clones(2);
}

#[test]
fn what_can_not_be_copied_or_opened_again_is_refused() {
	const CASES: [(&str, &str); 3] = [
		// Of what a clone writes to its copy the mapping would show nothing.
		(
			"int fd = fileno(tmpfile()); ftruncate(fd, 4096); mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);",
			"or from a file of memory",
		),
		(
			"int fd = open(\"/tmp\", O_TMPFILE | O_RDWR, 0600); posix_fallocate(fd, 0, 65 << 20);",
			"a deleted file that clones can't have a copy of",
		),
		(
			"char n[] = \"/tmp/ff-mapped-XXXXXX\"; int fd = mkstemp(n), r = open(n, O_RDONLY); unlink(n); ftruncate(fd, 4096); mmap(0, 4096, PROT_READ, MAP_SHARED, r, 0);",
			"or from a file of memory",
		),
	];
	for (statement, reason) in CASES {
		let program = Program::new(&format!("int main(void) {{ another();\n{statement}\nREADY; return 0; }}"));
		let refused = program.try_warm(&[]);
		assert_says(line(&refused), reason);
		program.place.until_empty();
	}
}

#[test]
fn a_directory_that_was_read_to_its_end_is_read_again() {
	Program::new(
		r#"
static int rest(DIR *d) { int n = 0; while (readdir(d)) n++; return n; }
int main(void) {
	DIR *d = opendir("/usr/include"); rest(d);
	another();
	READY;
	printf("%d ", rest(d)); rewinddir(d); printf("%d\n", rest(d)); return 0;
}
"#,
	)
	.is_the_same_in_clones(2);
}

/// Between the mounts of two namespaces nothing could be.
#[test]
fn directories_are_under_the_clones_own_mounts() {
	Program::new(
		r#"
int main(int argc, char **argv) {
	char n[200], f[300], g[300]; sprintf(n, "%s-XXXXXX", argv[0]); mkdtemp(n); int d = open(n, O_RDONLY | O_DIRECTORY), p = open(n, O_PATH); sprintf(f, "%s/a", n); sprintf(g, "%s/l", n); close(open(f, O_CREAT | O_WRONLY, 0600)); symlink("x", g); int l = open(g, O_PATH | O_NOFOLLOW);
	another();
	READY;
	sprintf(g, "%s/b%d", n, getpid()); sprintf(f, "%s/a%d", n, getpid()); close(open(f, O_CREAT | O_WRONLY, 0600)); char *a = strrchr(f, '/') + 1;
	printf("%d", renameat(d, a, AT_FDCWD, g)); printf(" %d %x\n", renameat(AT_FDCWD, g, p, a), fcntl(p, F_GETFL)); unlink(f);
	char b[9] = {0}; printf("%d %s\n", (int)readlinkat(l, "", b, 8), b);
}
"#,
	)
	.is_the_same_in_clones(2);
}

/// `O_TRUNC` and `O_CREAT` were for the first time, and the name is another's by now.
#[test]
fn a_file_is_opened_again_and_not_made_again() {
	Program::new(
		r#"
int main(int argc, char **argv) {
	char n[200], m[200], hidden[300], b[64]; sprintf(n, "%s-XXXXXX", argv[0]); strcpy(m, n); close(mkstemp(n)); int old = mkstemp(m); write(old, "new file", 8);
	int t = open(n, O_RDWR | O_CREAT | O_TRUNC, 0600), a = open(n, O_WRONLY | O_APPEND | O_CREAT, 0600); sprintf(hidden, "%s.old", n); link(n, hidden);
	write(t, "the old one", 11); write(a, ", appended", 10); rename(m, n);
	int null = open("/dev/null", O_RDWR | O_NONBLOCK), random = open("/dev/urandom", O_RDONLY);
	another();
	READY;
	int k = pread(t, b, 64, 0); printf("%.*s %ld\n", k, b, (long)lseek(t, 0, SEEK_CUR));
	fcntl(null, F_SETFL, 0); printf("%d %zd %x\n", (int)write(null, b, 64), read(random, b, 64), fcntl(a, F_GETFL) & O_APPEND);
}
"#,
	)
	.is_the_same_in_clones(2);
}
