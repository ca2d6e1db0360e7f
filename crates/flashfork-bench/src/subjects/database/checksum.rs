//! One number for everything a database holds.

use std::hash::{DefaultHasher, Hasher};

use rusqlite::{Connection, Row, types::ValueRef};

/// Every table, whole, and every index with what it points at: a page that changed in either changes the number.
const WALKS: [&str; 10] = [
	"SELECT * FROM customer ORDER BY id",
	"SELECT * FROM product ORDER BY id",
	"SELECT * FROM purchase ORDER BY id",
	"SELECT * FROM item ORDER BY id",
	"SELECT city, id FROM customer INDEXED BY customer_city ORDER BY city, id",
	"SELECT category, id FROM product INDEXED BY product_category ORDER BY category, id",
	"SELECT customer, id FROM purchase INDEXED BY purchase_customer ORDER BY customer, id",
	"SELECT placed, id FROM purchase INDEXED BY purchase_placed ORDER BY placed, id",
	"SELECT purchase, id FROM item INDEXED BY item_purchase ORDER BY purchase, id",
	"SELECT product, id FROM item INDEXED BY item_product ORDER BY product, id",
];

/// A checksum over all tables and indexes, comparable only within this version of this program.
pub fn checksum(db: &Connection) -> rusqlite::Result<u64> {
	let mut hasher = DefaultHasher::new();
	for walk in WALKS {
		let mut statement = db.prepare(walk)?;
		let columns = statement.column_count();
		let mut rows = statement.query([])?;
		let mut count = 0u64;
		while let Some(row) = rows.next()? {
			add(&mut hasher, row, columns)?;
			count += 1;
		}
		hasher.write_u64(count);
	}
	Ok(hasher.finish())
}

fn add(hasher: &mut DefaultHasher, row: &Row<'_>, columns: usize) -> rusqlite::Result<()> {
	for column in 0..columns {
		// Kind and length first, so that no two different rows hash the same bytes.
		match row.get_ref(column)? {
			ValueRef::Null => hasher.write_u8(0),
			ValueRef::Integer(value) => {
				hasher.write_u8(1);
				hasher.write_i64(value);
			}
			ValueRef::Real(value) => {
				hasher.write_u8(2);
				hasher.write_u64(value.to_bits());
			}
			ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
				hasher.write_u8(3);
				hasher.write_usize(bytes.len());
				hasher.write(bytes);
			}
		}
	}
	Ok(())
}
