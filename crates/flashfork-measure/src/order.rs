//! The order in which the coordinator asks its workers: every worker once per round, shuffled anew in each round.
//!
//! Interleaving makes slow drift (temperature, other load) hit all methods alike; the random order within a round keeps
//! one method from always following the same other one.

/// `rounds` random permutations of `0..workers`, the same ones for the same `seed`.
pub fn shuffled_rounds(rounds: usize, workers: usize, seed: u64) -> Vec<Vec<usize>> {
	let mut random = fastrand::Rng::with_seed(seed);
	(0..rounds).map(|_| shuffled_round(workers, &mut random)).collect()
}

/// One random permutation of `0..workers`.
pub fn shuffled_round(workers: usize, random: &mut fastrand::Rng) -> Vec<usize> {
	let mut order: Vec<usize> = (0..workers).collect();
	random.shuffle(&mut order);
	order
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_worker_is_asked_once_per_round() {
		for order in shuffled_rounds(50, 7, 1) {
			let mut sorted = order;
			sorted.sort_unstable();
			assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6]);
		}
	}

	#[test]
	fn each_worker_comes_first_about_equally_often() {
		let rounds = shuffled_rounds(3000, 3, 2);
		for worker in 0..3 {
			let first = rounds.iter().filter(|order| order[0] == worker).count();
			assert!((850..1150).contains(&first), "worker {worker} came first {first} times of 3000");
		}
	}

	#[test]
	fn a_seed_repeats_its_order() {
		assert_eq!(shuffled_rounds(5, 4, 3), shuffled_rounds(5, 4, 3));
		assert_ne!(shuffled_rounds(5, 4, 3), shuffled_rounds(5, 4, 4));
	}
}
