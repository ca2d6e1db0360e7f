//! The methods in turn, slice by slice, and then each once more for the same number of executions.

use super::{
	FuzzOptions,
	campaign::{self, Until},
	found::{self, Made},
	process::Setup,
};
use crate::{prelude::*, subjects::parent};
use flashfork_measure::order::shuffled_rounds;

/// Added to the number of a slice for AFL's random seed: the same inputs for every method, others in every slice.
const SEED: u64 = 9;

pub struct Runs<'a, 'b> {
	pub options: &'a FuzzOptions,
	pub setup: &'a Setup,
	pub database_bytes: u64,
	pub run: &'a mut Run<'b>,
}

impl Runs<'_, '_> {
	/// Runs all campaigns, each in its own directory within `work`.
	pub fn measure(&mut self, work: &Path) -> Result {
		let made = Made { database_bytes: self.database_bytes, cpu: self.setup.cpu };
		let mut methods = parent::of_any_size(self.run);
		let whole = self.slices(made, &mut methods, work);
		for method in found::methods(&self.run.records).collect::<Vec<_>>() {
			let slices = found::slices(&self.run.records, method);
			made.keep_slices(method, &slices, self.run)?;
		}
		whole?;
		self.equal_work(made, &methods, work)
	}

	/// The methods in turn. One that can't be had as it is meant goes from `methods`.
	fn slices(&mut self, made: Made, methods: &mut Vec<Method>, work: &Path) -> Result {
		let (options, seconds) = (self.options, f64::from(self.options.seconds));
		let (number, all) = (options.slices as usize, methods.clone());
		for (slice, order) in shuffled_rounds(number, methods.len(), SEED).into_iter().enumerate() {
			for (place, method) in order.into_iter().map(|index| all[index]).enumerate() {
				self.run.go_on()?;
				if !methods.contains(&method) {
					continue;
				}
				let what = format!("slice {} of {number}, {method}", slice + 1);
				if self.run.no_time_for(&what) {
					continue;
				}
				// The slices to come, and about as many for equal work.
				let share =
					1.0 / ((number - slice) * methods.len() - place.min(methods.len() - 1) + methods.len()) as f64;
				let time = Duration::from_secs_f64(seconds / number as f64).min(self.run.deadline().part(share).left());
				self.run.begin(&what, time.as_secs());
				let seed = SEED + slice as u64;
				let dir = work.join(format!("{method}-{slice}"));
				let until = Until::Time(time);
				let campaign = campaign::run(self.setup, method, seed, until, &dir, self.run)?;
				if let Some(flaw) = campaign.pages.flaw(method) {
					self.run.leave_out(method.as_ref(), flaw);
					methods.retain(|&other| other != method);
					continue;
				}
				made.keep_slice(method, slice, seed, &campaign, self.run)?;
			}
		}
		Ok(())
	}

	/// Runs every method for as many executions as the slowest managed in its first slice.
	fn equal_work(&mut self, made: Made, methods: &[Method], work: &Path) -> Result {
		let first = |&method: &Method| Some(found::slices(&self.run.records, method).first()?.afl.executions);
		let Some(executions) = methods.iter().filter_map(first).min() else { return Ok(()) };
		for &method in methods {
			self.run.go_on()?;
			if self.run.no_time_for(format!("equal work, {method}")) {
				continue;
			}
			self.run.begin(&format!("{executions} executions, {method}"), 0);
			let dir = work.join(format!("{method}-equal"));
			let until = Until::Executions(executions);
			let campaign = campaign::run(self.setup, method, SEED, until, &dir, self.run)?;
			// Less than the whole would be no equal work.
			if campaign.afl.executions < executions {
				break;
			}
			made.keep_equal(method, &campaign.afl, self.run)?;
		}
		Ok(())
	}
}
