/* SQLite: a small database in memory, which an input's statements read and change. Nobody takes their changes back. */
#include "sqlite3.c"

static const char prepare[] =
#include "schema.h"
	";WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000)"
	" INSERT INTO customer SELECT x, 'name' || x, CASE x % 3 WHEN 0 THEN 'Oslo' ELSE 'Turin' END, x * 7 % 1000 FROM n;"
	"INSERT INTO product SELECT id, 'title' || id, 'kind' || id % 10, id * 3, id % 50 FROM customer;"
	"INSERT INTO purchase SELECT id, id * 5 % 2000 + 1, id, CASE id % 4 WHEN 0 THEN 'open' ELSE 'paid' END, '' FROM customer;"
	"INSERT INTO item SELECT id, id, id * 11 % 2000 + 1, id % 9, id * 2, 'remark' FROM customer;";

static sqlite3 *db;
static int steps_left;

static int count_steps(void *unused)
{
	(void)unused;
	return (steps_left -= 50) <= 0;
}

static int authorize(void *unused, int action, const char *a, const char *b, const char *c, const char *d)
{
	(void)unused, (void)a, (void)b, (void)c, (void)d;
	return action == SQLITE_ATTACH || action == SQLITE_DETACH || action == SQLITE_PRAGMA ? SQLITE_DENY : SQLITE_OK;
}

void warm_up(void)
{
	if (sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK
		|| sqlite3_exec(db, prepare, NULL, NULL, NULL) != SQLITE_OK) {
		fprintf(stderr, "%s\n", sqlite3_errmsg(db));
		exit(1);
	}
	sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, 1, db);
	sqlite3_set_authorizer(db, authorize, NULL);
	sqlite3_progress_handler(db, 50, count_steps, NULL);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 50000);
	sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100);
	sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 25000);
	sqlite3_hard_heap_limit64(sqlite3_memory_used() + (32 << 20));
}

void run_one_input(const unsigned char *input, size_t len)
{
	char *text = malloc(len + 1);

	if (text == NULL)
		return;
	memcpy(text, input, len);
	text[len] = 0;
	steps_left = 10000;
	sqlite3_exec(db, text, NULL, NULL, NULL);
	free(text);
}
