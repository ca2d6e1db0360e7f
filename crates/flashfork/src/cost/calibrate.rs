//! Measures the prices, in a child with little memory, on one CPU.

mod measure;
mod sheet;

use super::{
	CostError, CostModel, ForkPrices, SealPrice, WritePrices,
	fit::{Sample, fit},
};
use crate::{HostId, fresh};
use sheet::Kind;
use std::time::Instant;

impl CostModel {
	/// Measures this host: in about a second, on one CPU, with up to 200 MB of memory.
	///
	/// Everything happens in a child process that the caller doesn't notice; processes with threads may call it. What
	/// else runs on the machine shows in the result, and in its residuals. Errors: a seal is refused or fails here,
	/// memory is short, or no child could be made.
	pub fn calibrate() -> Result<CostModel, CostError> {
		let start = Instant::now();
		// SAFETY: the measurement neither allocates nor panics.
		let sheet = unsafe { fresh::run(60, measure::run) }.map_err(|e| CostError::Child(e.to_string()))?;
		sheet.failure()?;
		let [fork, cycle] = sheet.forks().map(|samples| fork_prices(&samples));
		Ok(CostModel {
			host: HostId::read(),
			fork,
			cycle,
			write_fork: write_prices(&sheet.samples(Kind::WriteFork)),
			write_fork_thp: Some(sheet.samples(Kind::WriteForkThp)).filter(|s| !s.is_empty()).map(|s| write_prices(&s)),
			write_seal: write_prices(&sheet.samples(Kind::WriteSeal)),
			write_odf: Some(sheet.samples(Kind::WriteOdf)).filter(|s| !s.is_empty()).map(|s| write_prices(&s)),
			seal: seal_price(&sheet.samples(Kind::Seal)),
			seal_small: seal_price(&sheet.samples(Kind::SealSmall)),
			calibration_seconds: start.elapsed().as_secs_f64(),
		})
	}
}

fn fork_prices(samples: &[Sample<7>]) -> ForkPrices {
	let ([process, page, huge_page, vma, dirty_region, dirty_page, shared_table], residual) = fit(samples);
	ForkPrices { process, page, huge_page, vma, dirty_region, dirty_page, shared_table, residual }
}

fn write_prices(samples: &[Sample<2>]) -> WritePrices {
	let ([region, page], residual) = fit(samples);
	WritePrices { region, page, residual }
}

fn seal_price(samples: &[Sample<2>]) -> SealPrice {
	let ([look, byte], residual) = fit(samples);
	SealPrice { look, gb: byte * f64::from(1 << 30), residual }
}
