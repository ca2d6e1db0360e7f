/*
 * The fuzzed program: SQLite with a large database already in memory, after "fuzzershell" of the SQLite project.
 *
 *     harness DATABASE COUNTER < SQL
 *
 * DATABASE is copied into an in-memory database; only then does AFL's fork server start, so that each input meets the
 * loaded database. The SQL of one input can reach no file and no other database, and does a bounded amount of work.
 * COUNTER is a file of eight bytes; each clone adds one to the number in it. (AFL writes its own count of executions once a
 * minute at most, too seldom to show how their rate develops.)
 *
 * The whole of SQLite is included so that one compiler call instruments everything.
 */
#include "sqlite3.c"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Longest input that is read, in bytes; longer ones are cut. */
#define INPUT_MAX 16384
/* Virtual machine steps one input may take, and how often they are counted. */
#define STEPS_MAX 10000
#define STEPS_BETWEEN 50
/* Memory one input may allocate beyond the database, in bytes. */
#define MEMORY_MAX (32 << 20)

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "harness: %s: %s\n", what, why);
	exit(2);
}

/* Maps the counter shared, so that what clones add shows in the file. */
static volatile uint64_t *map_counter(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		fail(path, strerror(errno));
	close(fd);
	return at;
}

/* Copies the database in the file into `memory`. */
static void load(const char *path, sqlite3 *memory)
{
	sqlite3 *file;
	sqlite3_backup *backup;

	if (sqlite3_open_v2(path, &file, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
		fail(path, sqlite3_errmsg(file));
	backup = sqlite3_backup_init(memory, "main", file, "main");
	if (backup == NULL)
		fail(path, sqlite3_errmsg(memory));
	if (sqlite3_backup_step(backup, -1) != SQLITE_DONE)
		fail(path, sqlite3_errmsg(memory));
	sqlite3_backup_finish(backup);
	sqlite3_close(file);
}

/*
 * What an input may do. Refused: other databases and files; PRAGMAs that walk the whole database in one step or lift the
 * limits below. SQLITE_IGNORE for a DELETE makes SQLite delete row by row, which counts as steps, instead of dropping the
 * whole table at once (sqlite3_set_authorizer, "truncate optimization"); dropping a table of the database is refused for
 * the same reason.
 */
static int authorize(void *unused, int action, const char *first, const char *second, const char *database, const char *trigger)
{
	static const char *const refused[] = {
		"data_store_directory", "foreign_key_check", "hard_heap_limit", "integrity_check", "optimize", "quick_check",
		"soft_heap_limit", "temp_store_directory", "threads", "trusted_schema", "writable_schema",
	};
	size_t i;

	(void)unused, (void)second, (void)trigger;
	switch (action) {
	case SQLITE_ATTACH:
	case SQLITE_DETACH:
		return SQLITE_DENY;
	case SQLITE_DROP_TABLE:
		return database != NULL && strcmp(database, "main") == 0 ? SQLITE_DENY : SQLITE_OK;
	case SQLITE_DELETE:
		/* The schema tables must stay writable for DROP INDEX and the like; they are small. */
		return first != NULL && strncmp(first, "sqlite_", 7) == 0 ? SQLITE_OK : SQLITE_IGNORE;
	case SQLITE_PRAGMA:
		for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
			if (first != NULL && sqlite3_stricmp(first, refused[i]) == 0)
				return SQLITE_DENY;
		return SQLITE_OK;
	default:
		return SQLITE_OK;
	}
}

/* Ends the input's SQL when it has used up its steps. */
static int count_steps(void *left)
{
	return (*(int *)left -= STEPS_BETWEEN) <= 0;
}

static void set_limits(sqlite3 *db)
{
	static const int limits[][2] = {
		{ SQLITE_LIMIT_LENGTH, 50000 },     { SQLITE_LIMIT_SQL_LENGTH, INPUT_MAX },  { SQLITE_LIMIT_COLUMN, 100 },
		{ SQLITE_LIMIT_EXPR_DEPTH, 50 },    { SQLITE_LIMIT_COMPOUND_SELECT, 10 },    { SQLITE_LIMIT_VDBE_OP, 25000 },
		{ SQLITE_LIMIT_FUNCTION_ARG, 20 },  { SQLITE_LIMIT_ATTACHED, 0 },            { SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100 },
		{ SQLITE_LIMIT_TRIGGER_DEPTH, 10 }, { SQLITE_LIMIT_VARIABLE_NUMBER, 100 },   { SQLITE_LIMIT_WORKER_THREADS, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		sqlite3_limit(db, limits[i][0], limits[i][1]);
	sqlite3_hard_heap_limit64(sqlite3_memory_used() + MEMORY_MAX);
}

/* Rows are fetched and thrown away. */
static int discard(void *unused, int columns, char **values, char **names)
{
	(void)unused, (void)columns, (void)values, (void)names;
	return 0;
}

int main(int argc, char **argv)
{
	static char input[INPUT_MAX + 1];
	static int steps_left = STEPS_MAX;
	size_t length = 0;
	ssize_t got;
	volatile uint64_t *counter;
	sqlite3 *db;

	if (argc != 3)
		fail("usage", "harness DATABASE COUNTER < SQL");
	counter = map_counter(argv[2]);
	if (sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK)
		fail("open a database in memory", sqlite3_errmsg(db));
	load(argv[1], db);
	/* Reads the schema, so that no input has to. */
	if (sqlite3_exec(db, "PRAGMA foreign_keys = ON; SELECT count(*) FROM sqlite_schema", discard, NULL, NULL) != SQLITE_OK)
		fail("read the schema", sqlite3_errmsg(db));
	/* The same input must always take the same path: random() starts from a fixed seed. */
	sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, 1, db);
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_set_authorizer(db, authorize, NULL);
	sqlite3_progress_handler(db, STEPS_BETWEEN, count_steps, &steps_left);
	set_limits(db);

	__AFL_INIT();

	++*counter;
	while (length < INPUT_MAX && (got = read(STDIN_FILENO, input + length, INPUT_MAX - length)) > 0)
		length += (size_t)got;
	sqlite3_exec(db, input, discard, NULL, NULL);
	/* Not exit, and no sqlite3_close: giving back the whole database would write to all of it. */
	_exit(0);
}
