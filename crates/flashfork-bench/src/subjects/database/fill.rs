//! The rows: how many for a size, and what is in them.

use rusqlite::{Connection, params};

use super::random::Random;

/// The tables, and the indexes made once they are full.
const TABLES: &str = include_str!("schema.sql");
const INDEXES: &str = include_str!("indexes.sql");
/// What every row is drawn from. A change of it, or of anything here, is a new [`super::VERSION`].
const SEED: u64 = 0x0d_f021;
/// Bytes of database per purchase, with its items, its share of the customers and products, and all indexes; measured.
const BYTES_PER_PURCHASE: u64 = 635;
/// Below this a database holds too few rows for every test to find some.
const FEWEST_PURCHASES: u64 = 200;

const CITIES: [&str; 8] = ["Oslo", "Turin", "Quito", "Hanoi", "Accra", "Perth", "Sofia", "Lima"];
const CATEGORIES: [&str; 6] = ["tools", "books", "paint", "seeds", "lamps", "rope"];
const STATES: [&str; 3] = ["open", "paid", "cancelled"];

/// Rows per table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rows {
	pub customers: u64,
	pub products: u64,
	pub purchases: u64,
	pub items: u64,
}

impl Rows {
	/// The rows of a database of about `bytes`: five purchases per customer, two items per purchase, ten items per
	/// product, on average.
	pub fn for_size(bytes: u64) -> Self {
		let purchases = (bytes / BYTES_PER_PURCHASE).max(FEWEST_PURCHASES);
		Self { customers: purchases / 5, products: purchases / 5, purchases, items: purchases * 2 }
	}
}

/// Creates the tables, rows and indexes in an empty database, in one transaction.
pub fn fill(db: &Connection, rows: Rows) -> rusqlite::Result<()> {
	// The references are right by construction; checking each would double the time. The tests check them all.
	db.execute_batch("PRAGMA foreign_keys = OFF; BEGIN")?;
	db.execute_batch(TABLES)?;
	let mut random = Random::new(SEED);
	customers(db, rows, &mut random)?;
	products(db, rows, &mut random)?;
	purchases(db, rows, &mut random)?;
	items(db, rows, &mut random)?;
	// Filled in one pass each from the full tables, which is faster than row by row.
	db.execute_batch(INDEXES)?;
	db.execute_batch("COMMIT")
}

fn customers(db: &Connection, rows: Rows, random: &mut Random) -> rusqlite::Result<()> {
	let mut insert = db.prepare("INSERT INTO customer VALUES (?1, ?2, ?3, ?4)")?;
	let mut name = String::new();
	for id in 1..=rows.customers {
		random.sentence(&mut name, 12, 30);
		insert.execute(params![id, name, random.pick(&CITIES), random.below(100_000)])?;
	}
	Ok(())
}

fn products(db: &Connection, rows: Rows, random: &mut Random) -> rusqlite::Result<()> {
	let mut insert = db.prepare("INSERT INTO product VALUES (?1, ?2, ?3, ?4, ?5)")?;
	let mut title = String::new();
	for id in 1..=rows.products {
		random.sentence(&mut title, 20, 60);
		let (category, price, stock) = (random.pick(&CATEGORIES), random.below(100_000), random.below(1000));
		insert.execute(params![id, title, category, price, stock])?;
	}
	Ok(())
}

fn purchases(db: &Connection, rows: Rows, random: &mut Random) -> rusqlite::Result<()> {
	let mut insert = db.prepare("INSERT INTO purchase VALUES (?1, ?2, ?3, ?4, ?5)")?;
	let mut note = String::new();
	for id in 1..=rows.purchases {
		random.sentence(&mut note, 200, 400);
		let (customer, placed, state) = (1 + random.below(rows.customers), random.below(1 << 30), random.pick(&STATES));
		insert.execute(params![id, customer, placed, state, note])?;
	}
	Ok(())
}

fn items(db: &Connection, rows: Rows, random: &mut Random) -> rusqlite::Result<()> {
	let mut insert = db.prepare("INSERT INTO item VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
	let mut remark = String::new();
	for id in 1..=rows.items {
		random.sentence(&mut remark, 40, 120);
		let (purchase, product) = (1 + (id - 1) / 2, 1 + random.below(rows.products));
		let (quantity, paid) = (1 + random.below(9), random.below(100_000));
		insert.execute(params![id, purchase, product, quantity, paid, remark])?;
	}
	Ok(())
}
