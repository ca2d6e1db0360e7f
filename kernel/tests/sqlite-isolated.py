# SPDX-License-Identifier: GPL-2.0-only
"""Runs in a guest: SQLite tests, each in a forked copy of one loaded database in memory. Whatever a test
does, the next one must find the database as it was loaded, and so must the process that loaded it."""

import hashlib
import os
import sqlite3
import sys

ROWS = int(sys.argv[1])


def load():
	db = sqlite3.connect(":memory:")
	db.execute("create table t(id integer primary key, a int, b text, c blob)")
	db.execute("create table log(id integer, what text)")
	db.executemany("insert into t values(?, ?, ?, ?)",
				   ((i, i * 7919 % 10007, f"row {i}", bytes([i % 251]) * 900) for i in range(ROWS)))
	db.execute("create index ta on t(a)")
	db.commit()
	return db


def digest(db):
	state = hashlib.sha256()
	for row in db.execute("select * from t order by id"):
		state.update(repr(row).encode())
	state.update(repr(db.execute("select count(*) from log").fetchone()).encode())
	return state.hexdigest()


def check(db):
	assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def update(db):
	db.execute("update t set a = a + 1, c = zeroblob(900)")
	assert db.execute("select count(*) from t where c = zeroblob(900)").fetchone() == (ROWS,)


def delete(db):
	db.execute("delete from t where a % 3 = 0")
	left = db.execute("select count(*) from t").fetchone()[0]
	assert 0 < left < ROWS and left == db.execute("select count(*) from t where a % 3").fetchone()[0]


def rollback(db):
	before = digest(db)
	db.execute("delete from t")
	db.rollback()
	assert digest(db) == before


def trigger(db):
	db.execute("create trigger g after update on t begin insert into log values(new.id, 'updated'); end")
	db.execute("update t set a = 0 where id % 10 = 0")
	assert db.execute("select count(*) from log").fetchone()[0] == (ROWS + 9) // 10


def vacuum(db):
	db.execute("delete from t where id % 2")
	db.commit()
	db.execute("vacuum")
	check(db)


def drop(db):
	db.execute("drop table t")
	assert db.execute("select name from sqlite_master").fetchall() == [("log",)]


def join(db):
	pairs = db.execute("select count(*) from t x join t y on x.a = y.a where x.id < 200").fetchone()[0]
	assert pairs >= min(200, ROWS)


def nested(db):
	"""A test that forks tests of its own."""
	db.execute("update t set b = 'nested'")
	db.commit()
	isolated(db, delete)
	assert db.execute("select count(*) from t where b = 'nested'").fetchone() == (ROWS,)


def isolated(db, test):
	pid = os.fork()
	if pid == 0:
		try:
			test(db)
			check(db)
			os._exit(0)
		except BaseException as error:
			print(f"not ok {test.__name__}: {error!r}", flush=True)
			os._exit(1)
	assert os.waitpid(pid, 0)[1] == 0, test.__name__


database = load()
loaded = digest(database)
for repeat in range(3):
	for case in (check, update, delete, rollback, trigger, vacuum, drop, join, nested):
		isolated(database, case)
		assert database.execute("select count(*) from log").fetchone() == (0,), case.__name__
	assert digest(database) == loaded
	print(f"ok {repeat + 1} 9 tests of {ROWS} rows", flush=True)
