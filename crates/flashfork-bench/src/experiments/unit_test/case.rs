//! The three unit tests, and what each must find.

use crate::prelude::*;
use rusqlite::{Connection, params};

/// A unit test. Each touches a few rows through an index.
#[derive(
	Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::AsRefStr, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Case {
	/// A customer's open purchases.
	Select,
	/// Deletes a customer's cancelled purchases, and by foreign key their items.
	Delete,
	/// Raises the quantity in the small items of a product.
	Update,
}

/// What a test must find, computed by the parent before anything is cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
	/// The customer or product.
	key: i64,
	/// Rows found, deleted or changed: at least one.
	rows: i64,
	/// Select: the sum of a column over the rows. Delete: rows deleted by foreign key. Update: the sum of the changed
	/// column over all the product's items afterwards.
	sum: i64,
}

impl Case {
	/// What different runs of this test must find, on keys spread over the whole table: `count` of them, or fewer when
	/// a small database has no more.
	pub fn expectations(self, db: &Connection, count: usize) -> rusqlite::Result<Vec<Expected>> {
		let (table, look) = match self {
			Self::Select => {
				("customer", "SELECT count(*), total(placed) FROM purchase WHERE customer = ?1 AND state = 'open'")
			}
			Self::Delete => (
				"customer",
				"SELECT count(DISTINCT purchase.id), count(item.id)
                 FROM purchase LEFT JOIN item ON item.purchase = purchase.id
                 WHERE customer = ?1 AND state = 'cancelled'",
			),
			Self::Update => (
				"product",
				"SELECT count(*) FILTER (WHERE quantity < 4), total(quantity) + count(*) FILTER (WHERE quantity < 4)
                 FROM item WHERE product = ?1",
			),
		};
		let keys: i64 = db.query_row(&format!("SELECT max(id) FROM {table}"), [], |row| row.get(0))?;
		let mut look = db.prepare(look)?;
		let mut found = Vec::with_capacity(count);
		// More keys than needed, evenly spread, because some have no row to find.
		let candidates = keys.min(2 * count as i64 + 30);
		for candidate in 0..candidates {
			let key = 1 + candidate * keys / candidates;
			let expected = look
				.query_row([key], |row| Ok(Expected { key, rows: row.get(0)?, sum: row.get::<_, f64>(1)? as i64 }))?;
			if expected.rows > 0 {
				found.push(expected);
			}
			if found.len() == count {
				break;
			}
		}
		Ok(found)
	}

	/// Runs the test on `db` and returns whether it found what it should.
	pub fn passes(self, db: &Connection, expected: &Expected) -> rusqlite::Result<bool> {
		let &Expected { key, rows, sum } = expected;
		match self {
			Self::Select => {
				let mut purchases =
					db.prepare("SELECT placed, note FROM purchase WHERE customer = ?1 AND state = ?2")?;
				let mut found = purchases.query(params![key, "open"])?;
				let (mut count, mut total, mut letters) = (0, 0, 0);
				while let Some(purchase) = found.next()? {
					count += 1;
					total += purchase.get::<_, i64>(0)?;
					letters += purchase.get_ref(1)?.as_str()?.len();
				}
				Ok((count, total) == (rows, sum) && letters > 0)
			}
			Self::Delete => {
				let before = db.total_changes();
				let deleted = db.execute("DELETE FROM purchase WHERE customer = ?1 AND state = 'cancelled'", [key])?;
				let left: i64 = db.query_row(
					"SELECT count(*) FROM purchase WHERE customer = ?1 AND state = 'cancelled'",
					[key],
					|row| row.get(0),
				)?;
				let by_foreign_key = (db.total_changes() - before) as i64 - deleted as i64;
				Ok((deleted as i64, by_foreign_key, left) == (rows, sum, 0))
			}
			Self::Update => {
				let changed =
					db.execute("UPDATE item SET quantity = quantity + 1 WHERE product = ?1 AND quantity < 4", [key])?;
				let total: i64 =
					db.query_row("SELECT sum(quantity) FROM item WHERE product = ?1", [key], |row| row.get(0))?;
				Ok((changed as i64, total) == (rows, sum))
			}
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::subjects::database::in_memory;

	#[test]
	fn each_test_passes_once_on_a_fresh_database() {
		for case in Case::all() {
			let db = in_memory(4 << 20);
			let expected = case.expectations(&db, 20).unwrap();
			assert_eq!(expected.len(), 20);
			for expected in &expected {
				assert!(case.passes(&db, expected).unwrap(), "{case:?} {expected:?}");
				// What a test changed, it finds no second time.
				assert_eq!(case.passes(&db, expected).unwrap(), case == Case::Select);
			}
		}
	}

	#[test]
	fn a_wrong_database_fails_each_test() {
		let db = in_memory(4 << 20);
		let expected: Vec<_> = Case::all().map(|case| (case, case.expectations(&db, 1).unwrap()[0])).collect();
		db.execute("UPDATE purchase SET state = 'paid', placed = 1", []).unwrap();
		db.execute("UPDATE item SET quantity = 9", []).unwrap();
		for (case, expected) in expected {
			assert!(!case.passes(&db, &expected).unwrap(), "{case:?}");
		}
	}
}
