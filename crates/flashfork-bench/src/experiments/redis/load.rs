//! Clients that keep requests under way and time each answer.

use std::{
	collections::VecDeque,
	sync::{
		Arc,
		atomic::{AtomicU8, Ordering::SeqCst},
	},
	thread::JoinHandle,
};

use super::client::{Client, command};
use crate::prelude::*;

/// One request in so many writes (memtier_benchmark's default).
const WRITES: u64 = 11;
/// Bytes of a written value (memtier_benchmark's default).
const VALUE: [u8; 32] = [b'x'; 32];

const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const ENDING: u8 = 2;

/// Running clients.
pub struct Load {
	stage: Arc<AtomicU8>,
	clients: Vec<JoinHandle<Result<Vec<u32>>>>,
	begun: std::cell::Cell<Instant>,
}

impl Load {
	/// Starts clients; their answers aren't counted yet.
	pub fn start(socket: PathBuf, connections: u32, depth: u32, keys: u64, seed: u64) -> Result<Self> {
		let stage = Arc::new(AtomicU8::new(WARMING));
		let mut clients = Vec::new();
		for number in 0..connections {
			let client = Client::connect(&socket).or_cant("connect to redis-server")?;
			let stage = Arc::clone(&stage);
			let random = fastrand::Rng::with_seed(seed ^ u64::from(number));
			clients.push(std::thread::spawn(move || drive(client, depth as usize, keys, random, &stage)));
		}
		Ok(Self { stage, clients, begun: Instant::now().into() })
	}

	/// From now on answers count.
	pub fn begin(&self) {
		self.begun.set(Instant::now());
		self.stage.store(COUNTING, SeqCst);
	}

	/// Ends the clients; every counted latency in microseconds, and the seconds it took.
	pub fn end(self) -> Result<(Vec<u32>, f64)> {
		self.stage.store(ENDING, SeqCst);
		let seconds = self.begun.get().elapsed().as_secs_f64();
		let mut all = Vec::new();
		for client in self.clients {
			let taken = client.join().map_err(|_| unable!("a client's thread panicked"))?;
			all.extend(taken?);
		}
		Ok((all, seconds))
	}
}

/// One connection: sends as many requests as answers came, so that `depth` are under way.
fn drive(mut client: Client, depth: usize, keys: u64, mut random: fastrand::Rng, stage: &AtomicU8) -> Result<Vec<u32>> {
	/// Answers read before the next requests are sent.
	const STEP: usize = 64;
	let mut sent: VecDeque<Instant> = VecDeque::with_capacity(depth);
	let (mut out, mut latencies) = (Vec::new(), Vec::new());
	while stage.load(SeqCst) != ENDING {
		out.clear();
		let now = Instant::now();
		while sent.len() < depth {
			let key = format!("key:{}", random.u64(..keys));
			match random.u64(..WRITES) {
				0 => command(&mut out, &[b"SET", key.as_bytes(), &VALUE]),
				_ => command(&mut out, &[b"GET", key.as_bytes()]),
			}
			sent.push_back(now);
		}
		client.send(&out)?;
		for _ in 0..STEP.min(depth) {
			client.reply()?;
			if let Some(began) = sent.pop_front()
				&& stage.load(SeqCst) == COUNTING
			{
				latencies.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
			}
		}
	}
	// What is still under way is read, so that the server can end in order.
	for _ in sent {
		client.reply()?;
	}
	Ok(latencies)
}
