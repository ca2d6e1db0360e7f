//! What will be measured, decided before anything is allocated.

use super::{ForkOptions, touch::ParentState};
use crate::{prelude::*, subjects::parent::RESERVE};
use flashfork::Headroom;

const SIZES: [u64; 6] = [0, 64 << 20, 256 << 20, 1 << 30, 4 << 30, 8 << 30];
const LARGEST_QUICK: u64 = 1 << 30;

type LeftOut = (String, String);

/// A decided run.
#[derive(Clone)]
pub struct Plan {
	/// Sizes in bytes, ascending, each once.
	pub sizes: Vec<u64>,
	/// Methods this kernel can, in their order.
	pub methods: Vec<Method>,
	pub states: &'static [ParentState],
	/// Rounds of interleaved batches.
	pub rounds: usize,
	/// How many times sealing is measured per size and page size.
	pub seals: usize,
	/// How many workers clone at once in the concurrent part; 1 for no such part.
	pub concurrent: usize,
	/// The CPU everything is pinned to.
	pub cpu: usize,
	/// All CPUs, for the concurrent part.
	pub cpus: Vec<usize>,
	/// What was left out and why.
	pub missing: Vec<LeftOut>,
}

impl Plan {
	/// Decides on a run of `methods`, refusing sizes that were asked for and don't fit.
	pub fn new(options: &ForkOptions, methods: Vec<Method>) -> Result<Self> {
		let concurrent = options.concurrent.unwrap_or(1) as usize;
		let headroom = memory::headroom()?;
		let (sizes, missing) = choose_sizes(options, &methods, concurrent, &headroom)?;
		let rounds = options.rounds.unwrap_or(if options.quick { 6 } else { 20 }) as usize;
		Ok(Self {
			sizes,
			methods,
			states: if options.quick { &ParentState::QUICK } else { &ParentState::ALL },
			rounds,
			seals: rounds.min(5),
			concurrent,
			cpu: pin::chosen_cpu()?,
			cpus: pin::allowed_cpus()?,
			missing,
		})
	}

	/// `methods` at `size` with `copies` workers each, in groups that fit into the memory available now.
	pub fn groups(&self, methods: &[Method], size: u64, copies: usize) -> Result<Vec<Vec<Method>>> {
		group(methods, size, copies, &memory::headroom()?)
	}
}

/// Those of `methods` worth telling apart at `size`: without memory the two plain ones are the same.
fn apart(methods: &[Method], size: u64) -> impl Iterator<Item = Method> {
	methods.iter().copied().filter(move |&method| size > 0 || !matches!(method, Method::ForkThp | Method::Hugetlb))
}

/// What `copies` workers need, with as many empty ones beside them.
fn needed(method: Method, size: u64, copies: usize) -> u64 {
	copies as u64 * (method.memory_needed(size) + Method::Fork4k.memory_needed(0))
}

fn require(methods: &[Method], size: u64, copies: usize, headroom: &Headroom) -> Result {
	apart(methods, size).try_for_each(|method| {
		let times = if copies > 1 { format!("{copies} times ") } else { String::new() };
		memory::require(
			headroom,
			format!("{times}{}, method {method},", Size(size)),
			needed(method, size, copies) + RESERVE,
		)
	})
}

fn choose_sizes(
	options: &ForkOptions,
	methods: &[Method],
	copies: usize,
	headroom: &Headroom,
) -> Result<(Vec<u64>, Vec<LeftOut>)> {
	let Some(sizes) = options.asked() else {
		let largest = if options.quick { LARGEST_QUICK } else { u64::MAX };
		let mut missing = Vec::new();
		let fitting = SIZES.into_iter().filter(|&size| size <= largest).filter(|&size| {
			let fits = require(methods, size, copies, headroom);
			missing.extend(fits.as_ref().err().map(|why| (Size(size).to_string(), why.to_string())));
			fits.is_ok()
		});
		return Ok((fitting.collect(), missing));
	};
	let sizes = ascending(sizes);
	sizes.iter().try_for_each(|&size| require(methods, size, copies, headroom))?;
	Ok((sizes, Vec::new()))
}

/// Fills groups in the methods' order; a method that doesn't fit beside the others begins a new group.
fn group(methods: &[Method], size: u64, copies: usize, headroom: &Headroom) -> Result<Vec<Vec<Method>>> {
	require(methods, size, copies, headroom)?;
	let mut groups: Vec<Vec<Method>> = Vec::new();
	let mut used = u64::MAX;
	for method in apart(methods, size) {
		let more = needed(method, size, copies);
		match groups.last_mut() {
			Some(group) if used.saturating_add(more) <= headroom.available => {
				group.push(method);
				used += more;
			}
			_ => {
				groups.push(vec![method]);
				used = RESERVE + more;
			}
		}
	}
	Ok(groups)
}

#[cfg(test)]
mod tests {
	use super::*;

	fn room(available: u64) -> Headroom {
		Headroom { available, limit: "MemAvailable".into() }
	}

	#[test]
	fn an_asked_size_that_does_not_fit_is_refused_with_figures() {
		let options = ForkOptions { sizes: Some(vec![Size(64 << 20), Size(4 << 30)]), ..ForkOptions::default() };
		let text = choose_sizes(&options, &Method::STOCK, 1, &room(3 << 30)).unwrap_err().to_string();
		assert!(text.starts_with("4G, method fork-4k, needs 4.3 GB") && text.contains("3 GB are free"), "{text}");
		assert!(choose_sizes(&options, &Method::STOCK, 1, &room(8 << 30)).is_ok());
	}

	#[test]
	fn concurrency_counts() {
		let options = ForkOptions { sizes: Some(vec![Size(1 << 30)]), ..ForkOptions::default() };
		assert!(choose_sizes(&options, &Method::STOCK, 1, &room(3 << 30)).is_ok());
		let text = choose_sizes(&options, &Method::STOCK, 3, &room(3 << 30)).unwrap_err().to_string();
		assert!(text.starts_with("3 times 1G"), "{text}");
	}

	#[test]
	fn without_the_flag_only_what_fits_is_measured() {
		let (sizes, missing) = choose_sizes(&ForkOptions::default(), &Method::STOCK, 1, &room(2 << 30)).unwrap();
		assert_eq!(sizes, SIZES[..4]);
		assert_eq!(missing.iter().map(|(cell, _)| cell.as_str()).collect::<Vec<_>>(), ["4G", "8G"]);
		assert!(missing[0].1.contains("2 GB are free"), "{missing:?}");
		let quick = ForkOptions { quick: true, ..ForkOptions::default() };
		let (sizes, missing) = choose_sizes(&quick, &Method::STOCK, 1, &room(64 << 30)).unwrap();
		assert_eq!((sizes.as_slice(), missing.len()), (&SIZES[..4], 0));
	}

	#[test]
	fn asked_sizes_are_sorted_and_measured_once() {
		let sizes = [64 << 20, 0, 64 << 20].map(Size).to_vec();
		let options = ForkOptions { sizes: Some(sizes), ..ForkOptions::default() };
		assert_eq!(choose_sizes(&options, &Method::STOCK, 1, &room(8 << 30)).unwrap().0, [0, 64 << 20]);
	}

	#[test]
	fn methods_share_a_group_as_far_as_they_fit() {
		use Method::{Fork4k, ForkThp, Odf, Seal};
		assert_eq!(group(&Method::STOCK, 1 << 30, 1, &room(8 << 30)).unwrap(), [vec![Fork4k, ForkThp, Seal]]);
		assert_eq!(group(&Method::STOCK, 8 << 30, 1, &room(24 << 30)).unwrap(), [vec![Fork4k, ForkThp], vec![Seal]]);
		assert_eq!(
			group(&Method::STOCK, 8 << 30, 1, &room(10 << 30)).unwrap(),
			[vec![Fork4k], vec![ForkThp], vec![Seal]]
		);
		assert!(group(&Method::STOCK, 8 << 30, 1, &room(8 << 30)).is_err());
		assert_eq!(group(&Method::STOCK, 0, 1, &room(1 << 30)).unwrap(), [vec![Fork4k, Seal]]);
		assert_eq!(group(Method::VARIANTS, 0, 1, &room(1 << 30)).unwrap(), [vec![Fork4k, Seal, Odf]]);
	}
}
