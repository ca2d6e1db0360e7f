//! What will be measured, decided before anything is allocated.

use flashfork::Headroom;

use super::{GuestKind, VmCloneOptions};
use crate::{
	prelude::*,
	subjects::vm_host::{MemoryPages, available},
};

/// Sizes measured unless others are asked for.
const SIZES: [u64; 7] = [128 << 20, 256 << 20, 512 << 20, 1 << 30, 2 << 30, 4 << 30, 8 << 30];
/// The same for Linux guests: what the promise compares.
const LINUX_SIZES: [u64; 2] = [128 << 20, 1 << 30];
const LARGEST_QUICK: u64 = 512 << 20;
/// Left to the rest of the machine and to the clones.
const RESERVE: u64 = 1 << 30;

type LeftOut = (String, String);

/// A decided run.
#[derive(Clone)]
pub struct Plan {
	/// What runs in the guests.
	pub guests: Vec<GuestKind>,
	/// Sizes of tiny guests' memory in bytes, ascending, each once, with the pages it can be made of.
	pub sizes: Vec<(u64, Vec<MemoryPages>)>,
	pub linux_sizes: Vec<u64>,
	/// Rounds of interleaved batches with tiny guests.
	pub rounds: usize,
	/// The same with Linux guests.
	pub linux_rounds: usize,
	/// Clones alive at the same time while their memory is counted.
	pub alive: usize,
	/// How often it is counted.
	pub counts: usize,
	/// What was left out and why.
	pub missing: Vec<LeftOut>,
}

impl Plan {
	/// Decides on a run, refusing sizes that were asked for and don't fit.
	pub fn new(options: &VmCloneOptions) -> Result<Self> {
		let headroom = memory::headroom()?;
		let mut missing = Vec::new();
		let mut choose = |usual: &[u64], kinds: u64| choose(options, usual, kinds, &headroom, &mut missing);
		let measures = |guest| options.guests.contains(&guest);
		// A template on small pages and one on huge ones, and a third on pages that are set aside already.
		let tiny = if measures(GuestKind::Tiny) { choose(&SIZES, 2)? } else { Vec::new() };
		let linux_sizes = if measures(GuestKind::Linux) { choose(&LINUX_SIZES, 2)? } else { Vec::new() };
		let (mut sizes, mut lacking) = (Vec::new(), None);
		for size in tiny {
			// A template, a cold boot, and a clone that copies.
			let (pages, short) = available(size, 3)?;
			sizes.push((size, pages));
			// What is missing for the largest size says what to do for all.
			lacking = short.or(lacking);
		}
		missing.extend(lacking.map(|why| ("hugetlb".to_owned(), why)));
		let rounds = |quick, full| options.rounds.map_or(if options.quick { quick } else { full }, |n| n as usize);
		Ok(Self {
			guests: options.guests.clone(),
			sizes,
			linux_sizes,
			rounds: rounds(5, 40),
			linux_rounds: rounds(2, 5),
			alive: if options.quick { 10 } else { 50 },
			counts: if options.quick { 1 } else { 3 },
			missing,
		})
	}
}

/// The sizes to be measured: all templates are there at the same time, so that sizes are interleaved too.
fn choose(
	options: &VmCloneOptions,
	usual: &[u64],
	kinds: u64,
	headroom: &Headroom,
	missing: &mut Vec<LeftOut>,
) -> Result<Vec<u64>> {
	let mut sizes = match &options.sizes {
		Some(asked) => ascending(asked.iter().map(|size| size.0)),
		None => {
			let largest = if options.quick { LARGEST_QUICK } else { u64::MAX };
			usual.iter().copied().filter(|size| *size <= largest).collect()
		}
	};
	loop {
		let names: Vec<String> = sizes.iter().map(|size| Size(*size).to_string()).collect();
		let needed = sizes.iter().sum::<u64>() * kinds + RESERVE;
		let fits = memory::require(headroom, format!("guests of {}", names.join(", ")), needed);
		match (fits, sizes.last()) {
			(Ok(()), _) => return Ok(sizes),
			(Err(why), Some(largest)) if options.sizes.is_none() && sizes.len() > 1 => {
				missing.push((Size(*largest).to_string(), why.to_string()));
				sizes.pop();
			}
			(Err(why), _) => return Err(why),
		}
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	fn room(available: u64) -> Headroom {
		Headroom { available, limit: "MemAvailable".into() }
	}

	#[test]
	fn without_the_flag_only_what_fits_together_is_measured() {
		let mut missing = Vec::new();
		let sizes = choose(&VmCloneOptions::default(), &SIZES, 2, &room(5 << 30), &mut missing).unwrap();
		assert_eq!(sizes, SIZES[..4]);
		assert_eq!(missing.len(), 3);
		assert!(missing[0].0 == "8G" && missing[0].1.contains("5 GB"), "{:?}", missing[0]);
		let quick = VmCloneOptions { quick: true, ..VmCloneOptions::default() };
		assert_eq!(choose(&quick, &SIZES, 2, &room(64 << 30), &mut missing).unwrap(), SIZES[..3]);
	}

	#[test]
	fn an_asked_size_that_does_not_fit_is_refused_with_figures() {
		let sizes = Some(vec![Size(4 << 30), Size(128 << 20), Size(4 << 30)]);
		let options = VmCloneOptions { sizes, ..VmCloneOptions::default() };
		let refused = choose(&options, &SIZES, 2, &room(4 << 30), &mut Vec::new()).unwrap_err().to_string();
		assert!(
			refused.starts_with("guests of 128M, 4G needs 9.2 GB") && refused.contains("4 GB are free"),
			"{refused}"
		);
		let chosen = choose(&options, &SIZES, 2, &room(16 << 30), &mut Vec::new()).unwrap();
		assert_eq!(chosen, [128 << 20, 4 << 30]);
	}
}
