//! Two clones draw no random numbers alike.

use crate::{
	place::{assert_says, line, stdout},
	programs::Program,
};

/// Draws at three levels (nonces, random numbers, keys), in the main thread and in another, of the library that `LOAD`
/// loads and from which `draw` draws.
const DRAWS: &str = r#"
static volatile int go;
static void print(void) {
	unsigned char bytes[16];
	for (int level = 0; level < 3; level++) {
		draw(level, bytes, sizeof bytes); for (int i = 0; i < 16; i++) printf("%02x", bytes[i]); puts("");
	}
}
static void *other(void *x) { unsigned char b; for (int l = 0; l < 3; l++) draw(l, &b, 1); go = 1; while (go < 2) usleep(1000); print(); return 0; }
int main(void) {
	LOAD; unsigned char b; for (int l = 0; l < 3; l++) draw(l, &b, 1);
	pthread_t t = thread_of(other); while (!go) usleep(1000);
	READY;
	print(); go = 2; pthread_join(t, 0); return 0;
}
"#;

const GNUTLS: &str = r#"
static int (*draw)(int, void *, size_t);
#define LOAD draw = dlsym(dlopen("libgnutls.so.30", RTLD_NOW | RTLD_LOCAL), "gnutls_rnd")
"#;

const GCRYPT: &str = r#"
static void (*nonce)(void *, size_t), (*any)(void *, size_t, int);
static void draw(int level, void *to, size_t len) { if (level) any(to, len, level); else nonce(to, len); }
#define LOAD void *l = dlopen("libgcrypt.so.20", RTLD_NOW); nonce = dlsym(l, "gcry_create_nonce"); any = dlsym(l, "gcry_randomize")
"#;

#[test]
fn clones_draw_no_random_numbers_of_gnutls_or_libgcrypt_alike() {
	for library in [GNUTLS, GCRYPT] {
		Program::new(&format!("{library}{DRAWS}")).draws_in_clones(6);
	}
}

#[test]
fn a_program_with_nss_is_refused() {
	let program = Program::new(
		r#"
int main(void) {
	int (*begin)(const char *) = dlsym(dlopen("libnss3.so", RTLD_NOW), "NSS_NoDB_Init"); if (begin(".")) return 1;
	another(); READY; return 0;
}
"#,
	);
	let refused = program.try_warm(&[]);
	let said = line(&refused);
	assert!(said.contains("random numbers") && said.contains("(lib") && said.contains("3.so)"), "{said}");
}

/// As Rust's `rand` 0.8 does, and GnuTLS. What does more than count is not called: it would take apart what is there.
#[test]
fn a_generator_that_counts_forks_notices_a_clone() {
	let program = Program::new(
		r#"
static unsigned long forks, known, state; static volatile int torn, go;
static void count(void) { __atomic_fetch_add(&forks, 1, __ATOMIC_RELAXED); }
static void tear_down(void) { torn = 1; __atomic_fetch_add(&forks, 1, __ATOMIC_RELAXED); }
static unsigned long draw(void) {
	if (known != __atomic_load_n(&forks, __ATOMIC_RELAXED)) { known = forks; getrandom(&state, sizeof state, 0); }
	return state = state * 6364136223846793005 + 1442695040888963407;
}
static void *other(void *x) { while (!go) usleep(1000); printf("%lx\n", draw()); return 0; }
int main(void) {
	pthread_t t; pthread_atfork(0, 0, count); pthread_atfork(0, 0, tear_down); getrandom(&state, sizeof state, 0); draw();
	pthread_create(&t, 0, other, 0); READY;
	printf("%lx\n", draw()); go = 1; pthread_join(t, 0); return torn;
}
"#,
	);
	program.draws_in_clones(2);
}

/// Rust's `rand` has that name in its messages. What says that it renews it is believed.
#[test]
fn a_program_with_rand_that_notices_no_fork_is_refused_unless_it_renews_that() {
	let program = |name: &str, renews: bool| {
		let source = format!(
			r#"
static int renew(void *x) {{ return 0; }}
static const char *volatile named = "/registry/{name}/src/rngs/thread.rs";
int main(void) {{
	another(); if ({renews} && flashfork_on_clone) flashfork_on_clone(renew, 0);
	READY; puts(named); return 0;
}}
"#,
			renews = i32::from(renews)
		);
		Program::new(&source)
	};
	let refused = program("rand-0.9.2", false).try_warm(&[]);
	let said = line(&refused);
	assert!(said.contains("a crate of Rust's whose random numbers") && said.contains("(rand-0.9.2)"), "{said}");
	assert_says(said, "from the system (OsRng, SysRng), or have every thread reseed");
	program("rand-0.9.2", true).is_the_same_in_clones(1);
	program("rand-0.8.5", false).is_the_same_in_clones(1);
}

/// As docs/THREADED_CLONES.md says it of `rand`: no function can reach another thread's generator, so it counts.
#[test]
fn generators_of_threads_are_renewed_by_a_function_that_counts() {
	let program = Program::new(
		r#"
static const char *volatile named = "/registry/rand-0.9.2/src/rngs/thread.rs";
static unsigned long clones; static __thread unsigned long seen, state; static pthread_barrier_t before, after;
static int count(void *x) { __atomic_fetch_add(&clones, 1, __ATOMIC_RELAXED); return 0; }
static unsigned long draw(void) {
	unsigned long now = __atomic_load_n(&clones, __ATOMIC_RELAXED);
	if (!state || seen != now) { seen = now; getrandom(&state, sizeof state, 0); }
	return state = state * 6364136223846793005 + 1442695040888963407;
}
static void *other(void *x) {
	draw(); pthread_barrier_wait(&before); pthread_barrier_wait(&after); printf("%lx\n", draw()); return 0;
}
int main(void) {
	pthread_barrier_init(&before, 0, 3); pthread_barrier_init(&after, 0, 3); flashfork_on_clone(count, 0); draw();
	pthread_t t[2]; for (int i = 0; i < 2; i++) pthread_create(t + i, 0, other, 0);
	pthread_barrier_wait(&before); READY; printf("%lx\n", draw()); pthread_barrier_wait(&after);
	for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
	return !named;
}
"#,
	);
	program.draws_in_clones(3);
}

/// By that BoringSSL, aws-lc and s2n notice a fork: a page that they find wiped.
#[test]
fn memory_that_forks_wipe_is_wiped_in_clones() {
	let program = Program::new(
		r#"
static char *wiped, *kept; static volatile int go;
static char *filled(size_t size, int with) {
	char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(p, with, size); return p;
}
static void *other(void *x) { while (!go) usleep(1000); printf("%d %d %d\n", wiped[0], wiped[3 << 20], kept[0]); return 0; }
int main(void) {
	wiped = filled(4 << 20, 7); kept = filled(32 << 20, 8); madvise(wiped, 4 << 20, MADV_WIPEONFORK);
	pthread_t t = thread_of(other); READY; go = 1; pthread_join(t, 0); return 0;
}
"#,
	);
	assert_eq!(stdout(&program.plain(&[])), "7 7 8\n");
	program.clones_say(1, 2, "0 0 8\n");
}
