//! A server on tokio's threads that knows nothing of clones:
//!
//!     flashfork warm --threads --ready listen t -- target/debug/examples/tokio_server 8080
//!     flashfork clone t & curl --http0.9 telnet://localhost:8080
//!
//! To a line of `ask` it answers with its process's number, when a timer, tasks and a blocking call have done what they
//! do. After `last` it accepts no more, and ends in order when whoever has said that hangs up.

use std::{
	sync::{
		Arc,
		atomic::{AtomicU64, Ordering::Relaxed},
	},
	time::Duration,
};
use tokio::{
	io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
	net::{TcpListener, TcpStream},
	sync::mpsc,
	time::{interval, sleep},
};

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> std::io::Result<()> {
	let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
	let ticks = Arc::new(AtomicU64::new(0));
	let counted = ticks.clone();
	tokio::spawn(async move {
		let mut every = interval(Duration::from_millis(1));
		loop {
			every.tick().await;
			counted.fetch_add(1, Relaxed);
		}
	});
	let (squares, mut numbers) = mpsc::channel::<(u64, mpsc::Sender<u64>)>(8);
	tokio::spawn(async move {
		while let Some((number, to)) = numbers.recv().await {
			let _ = to.send(number * number).await;
		}
	});
	// Its blocking threads are there before it listens.
	tokio::task::spawn_blocking(|| ()).await?;
	let listener = TcpListener::bind(("127.0.0.1", port)).await?;
	loop {
		let (stream, _) = listener.accept().await?;
		let mut stream = BufReader::new(stream);
		let mut line = String::new();
		stream.read_line(&mut line).await?;
		let answered = answer(stream, ticks.clone(), squares.clone());
		if line == "last\n" {
			drop(listener);
			return answered.await;
		}
		tokio::spawn(answered);
	}
}

async fn answer(
	mut stream: BufReader<TcpStream>,
	ticks: Arc<AtomicU64>,
	squares: mpsc::Sender<(u64, mpsc::Sender<u64>)>,
) -> std::io::Result<()> {
	let before = ticks.load(Relaxed);
	while ticks.load(Relaxed) < before + 10 {
		sleep(Duration::from_millis(1)).await;
	}
	let tasks: Vec<_> = (0..64)
		.map(|number| {
			let squares = squares.clone();
			tokio::spawn(async move {
				let (to, mut from) = mpsc::channel(1);
				squares.send((number, to)).await.ok()?;
				from.recv().await
			})
		})
		.collect();
	let mut sum = tokio::task::spawn_blocking(|| (0..1000u64).sum::<u64>()).await?;
	for task in tasks {
		sum += task.await?.unwrap_or_default();
	}
	stream.write_all(format!("{sum} {}\n", std::process::id()).as_bytes()).await?;
	// Until the other end hangs up.
	stream.read_line(&mut String::new()).await.map(drop)
}
