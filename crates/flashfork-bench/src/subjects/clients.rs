//! Clients that ask in turn, each as soon as it is answered.

use std::{cell::Cell, rc::Rc};

use crate::prelude::*;
use tokio::task::JoinSet;

/// What so many requests came to, shared out among clients as they ask; each has a number of its own, from `next` on.
/// To be awaited in a `LocalSet`.
pub async fn share_out<C: 'static, T: 'static>(
	clients: Vec<C>,
	count: u64,
	next: &Rc<Cell<u64>>,
	ask: impl AsyncFn(&mut C, u64) -> Result<T> + Copy + 'static,
) -> Result<Vec<T>> {
	let end = next.get() + count;
	let mut asking = JoinSet::new();
	for mut client in clients {
		let next = Rc::clone(next);
		asking.spawn_local(async move {
			let mut taken = Vec::new();
			while next.get() < end {
				let number = next.replace(next.get() + 1);
				taken.push(ask(&mut client, number).await?);
			}
			Ok::<_, BenchError>(taken)
		});
	}
	let mut taken = Vec::new();
	while let Some(done) = asking.join_next().await {
		taken.extend(done.map_err(BenchError::unable)??);
	}
	Ok(taken)
}
