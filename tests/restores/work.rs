//! What the program does: rows in an SQLite database in memory, blocks from malloc, a stream of stdio's.

use flashfork_tests::Result;
use rusqlite::Connection;
use std::ffi::CStr;

/// Blocks of malloc held all the time.
const BLOCKS: usize = 400;

pub struct Work {
	db: Connection,
	blocks: Vec<(*mut u8, usize)>,
	stream: *mut libc::FILE,
}

/// One number for a sequence of numbers.
struct Digest(u64);

impl Digest {
	fn add(&mut self, n: u64) {
		self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
	}
}

fn sql(e: rusqlite::Error) -> String {
	format!("SQLite: {e}")
}

impl Work {
	pub fn prepare() -> Result<Work> {
		let db = Connection::open_in_memory().map_err(sql)?;
		db.execute_batch(
			"CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, amount INTEGER);
             CREATE INDEX by_name ON item(name);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
             INSERT INTO item SELECT i, 'item ' || (i * 7919 % 3000), i * i % 1000 FROM n;",
		)
		.map_err(sql)?;
		// SAFETY: plain calls of libc; the stream is checked.
		let stream = unsafe { libc::tmpfile() };
		if stream.is_null() {
			return Err("tmpfile failed".into());
		}
		let mut work = Work { db, blocks: Vec::new(), stream };
		for i in 0..BLOCKS {
			let block = work.allocate(i * 997 % 9000 + 1, i as u8);
			work.blocks.push(block);
		}
		work.print(c"a line that stays in stdio's buffer ")?;
		Ok(work)
	}

	pub fn descriptor(&self) -> i32 {
		// SAFETY: the stream is open.
		unsafe { libc::fileno(self.stream) }
	}

	fn allocate(&self, len: usize, byte: u8) -> (*mut u8, usize) {
		// SAFETY: its own block, filled within its length.
		unsafe {
			let at = libc::malloc(len).cast::<u8>();
			assert!(!at.is_null(), "malloc({len}) failed");
			at.write_bytes(byte, len);
			(at, len)
		}
	}

	fn print(&self, text: &CStr) -> Result {
		// SAFETY: the stream is open, the text ends.
		if unsafe { libc::fputs(text.as_ptr(), self.stream) } < 0 { Err("fputs failed".into()) } else { Ok(()) }
	}

	/// The same work each time; one number for all that came out.
	pub fn same_again(&mut self) -> Result<u64> {
		let mut digest = Digest(1);
		for i in 0..40 {
			let (at, _) = self.allocate(i * 5003 % 200_000 + 1, 1);
			digest.add(at as u64);
		}
		for (at, len) in &self.blocks {
			// SAFETY: a block that is allocated, read within its length.
			digest.add(unsafe { std::slice::from_raw_parts(*at, *len) }.iter().map(|b| u64::from(*b)).sum());
		}
		self.db
			.execute_batch("INSERT INTO item(name, amount) VALUES('new', 5); DELETE FROM item WHERE id % 101 = 3")
			.map_err(sql)?;
		let sums = self.db.query_row("SELECT count(*), sum(amount), max(id), total_changes() FROM item", [], |row| {
			Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
		});
		sums.map_err(sql)?.iter().for_each(|n| digest.add(*n as u64));
		let random: i64 = self.db.query_row("SELECT random()", [], |row| row.get(0)).map_err(sql)?;
		digest.add(random as u64); // its generator's state is memory too
		self.print(c"and one that goes out\n")?;
		// SAFETY: the stream is open; the buffer is as long as said.
		unsafe {
			libc::fflush(self.stream);
			let written = libc::ftell(self.stream);
			digest.add(written as u64);
			libc::rewind(self.stream);
			let mut text = [0u8; 200];
			// What another turn wrote behind it is still there: files don't go back.
			let n = libc::fread(text.as_mut_ptr().cast(), 1, text.len().min(written as usize), self.stream);
			digest.add(n as u64);
			text.iter().for_each(|b| digest.add(u64::from(*b)));
		}
		Ok(digest.0)
	}

	/// Other work each time, which leaves a mess.
	pub fn something_else(&mut self, turn: u64) -> Result {
		let turn = turn as usize;
		for i in (turn % 7..BLOCKS).step_by(7) {
			let (at, len) = self.blocks[i];
			// SAFETY: allocated, and not used again before it is back.
			unsafe { if i % 2 == 0 { libc::free(at.cast()) } else { at.write_bytes(turn as u8, len) } }
		}
		for i in 0..turn % 20 {
			self.allocate((turn * 131 + i * 4099) % (1 << 20) + 1, turn as u8);
		}
		let change = match turn % 5 {
			0 => "DELETE FROM item WHERE id % 3 = 0",
			1 => "UPDATE item SET amount = amount + 1 WHERE id % 100 < 20",
			2 => "CREATE TABLE other AS SELECT * FROM item LIMIT 500",
			3 => "BEGIN; DROP TABLE item; ROLLBACK",
			_ => "BEGIN; UPDATE item SET name = 'x' || name WHERE id < 200",
		};
		// Some turns leave much work to the restore, most leave little.
		if turn.is_multiple_of(9) || turn % 5 > 2 {
			self.db.execute_batch(change).map_err(sql)?;
		}
		self.print(c"what nobody will read\n")?;
		if turn.is_multiple_of(3) {
			// SAFETY: the stream is open.
			unsafe { libc::fflush(self.stream) };
		}
		Ok(())
	}
}
