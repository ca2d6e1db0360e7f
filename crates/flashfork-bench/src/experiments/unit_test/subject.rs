//! The worker of `bench unit-test`: a test harness with its database in memory, which runs each test in a clone.

use rusqlite::Connection;

use super::{
	case::{Case, Expected},
	cycle::{self, Phase, Stamps},
};
use crate::{
	prelude::*,
	subjects::{
		database,
		engine::{self, Sealed},
		heap::{self, HeapPages},
	},
};

/// Different keys per test, so that clones don't all touch the same rows.
const KEYS: usize = 64;

/// A harness.
pub struct UnitTestSubject {
	method: Method,
	db: Connection,
	expected: Vec<(Case, Vec<Expected>)>,
	stamps: &'static Stamps,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Spec {
	/// How the memory is held and cloned.
	pub method: Method,
	pub image: PathBuf,
	/// The CPU to stay on, clones included.
	pub cpu: usize,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Ready {
	/// How long loading the database took, in seconds.
	pub initialise: f64,
	/// The harness's memory before any seal.
	pub pages: HeapPages,
	/// What was sealed, for the method that seals.
	pub sealed: Option<Sealed>,
	pub checksum: u64,
}

#[derive(Clone, Serialize, Deserialize)]
pub enum Ask {
	/// `count` clones that run `case`, after one that isn't counted; `first` chooses the keys.
	Batch { case: Case, first: usize, count: usize },
	/// The checksum of the database as it is now.
	Checksum,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
	Batch(Vec<(Phase, f64)>),
	Checksum(u64),
}

impl Subject for UnitTestSubject {
	const NAME: &'static str = "unit-test";
	type Spec = Spec;
	type Ready = Ready;
	type Ask = Ask;
	type Reply = Reply;

	fn environment(spec: &Spec) -> Vec<(&'static str, String)> {
		vec![heap::tunable(spec.method)]
	}

	fn prepare(spec: Spec) -> Result<(Self, Ready)> {
		pin::pin(spec.cpu)?;
		heap::choose(spec.method).or_cant("choose the heap's pages")?;
		let begin = Instant::now();
		let db = database::load(&spec.image)?;
		let initialise = begin.elapsed().as_secs_f64();
		// Everything the parent must know is found out now: once sealed, it only clones and waits.
		let expected = Case::all().map(|case| Ok((case, case.expectations(&db, KEYS)?)));
		let expected: Vec<_> = expected
			.collect::<rusqlite::Result<_>>()
			.map_err(|error| database::failed("find what the unit tests must find", error))?;
		if let Some((case, _)) = expected.iter().find(|(_, expected)| expected.is_empty()) {
			return Err(unable!("the database is too small for the unit test '{}'", case.as_ref()));
		}
		let checksum = database::checksum(&db)?;
		let pages = HeapPages::of_this_process()?;
		let sealed = engine::prepare(spec.method, 0)?;
		// SAFETY: zeros are atomics.
		let stamps = unsafe { memory::shared()? };
		let subject = Self { method: spec.method, db, expected, stamps };
		Ok((subject, Ready { initialise, pages, sealed, checksum }))
	}

	fn answer(&mut self, ask: Ask) -> Result<Reply> {
		match ask {
			Ask::Batch { case, first, count } => self.batch(case, first, count).map(Reply::Batch),
			Ask::Checksum => database::checksum(&self.db).map(Reply::Checksum),
		}
	}
}

impl UnitTestSubject {
	fn batch(&self, case: Case, first: usize, count: usize) -> Result<Vec<(Phase, f64)>> {
		let all = self.expected.iter().find(|(known, _)| *known == case).map(|(_, all)| all);
		let all = all.unwrap_or_else(|| unreachable!("every case has expectations"));
		// The first clone finds caches full of the other harnesses' data: it is made and checked, but not counted.
		let mut keys = all.iter().cycle().skip(first % all.len());
		let mut one = || {
			let expected = keys.next().unwrap_or_else(|| unreachable!("a cycle has no end"));
			cycle::run(self.method, &self.db, case, expected, self.stamps)
		};
		one()?;
		let all: Vec<_> = (0..count).map(|_| one()).collect::<Result<_>>()?;
		Ok(all.concat())
	}
}
