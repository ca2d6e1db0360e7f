//! AFL's own account of a campaign: the file `fuzzer_stats`.

use crate::prelude::*;

/// What AFL says it did. Lines are documented in AFL++'s docs/afl-fuzz_approach.md.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AflStats {
	pub version: String,
	pub executions: u64,
	/// Executions per second, on average.
	#[serde(default)]
	pub per_second: f64,
	/// Edges of the program that were reached.
	pub edges: u64,
	/// All edges it has.
	pub edges_of: u64,
	/// Inputs kept because they reached something new.
	pub corpus: u64,
	/// The share of the coverage map that was hit, in percent.
	pub coverage_percent: f64,
	/// Whether the same input takes the same path, in percent.
	pub stability_percent: f64,
	/// Inputs that crashed the program.
	pub crashes: u64,
	/// Inputs that didn't end in time.
	pub hangs: u64,
}

impl AflStats {
	/// Reads the file that AFL writes when it ends.
	pub fn read(path: &Path) -> Result<Self> {
		let text = std::fs::read_to_string(path).or_cant(format_args!("read AFL's statistics {}", path.display()))?;
		Self::parse(&text).map_err(|key| {
			unable!("AFL's statistics {} have no usable line '{key}'; bench fuzz knows AFL++ 4", path.display())
		})
	}

	fn parse(text: &str) -> Result<Self, &'static str> {
		let value = |key: &'static str| {
			let line = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key);
			line.map(|(_, value)| value.trim().trim_end_matches('%')).ok_or(key)
		};
		let count = |key| value(key)?.parse::<u64>().map_err(|_| key);
		let number = |key| value(key)?.parse::<f64>().map_err(|_| key);
		Ok(Self {
			version: value("afl_version")?.to_owned(),
			executions: count("execs_done")?,
			per_second: number("execs_per_sec")?,
			edges: count("edges_found")?,
			edges_of: count("total_edges")?,
			corpus: count("corpus_count")?,
			coverage_percent: number("bitmap_cvg")?,
			stability_percent: number("stability")?,
			crashes: count("saved_crashes")?,
			hangs: count("saved_hangs")?,
		})
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	const TEXT: &str = "\
start_time        : 1795239009
execs_done        : 718
execs_per_sec     : 23.59
corpus_count      : 72
stability         : 100.00%
bitmap_cvg        : 14.02%
saved_crashes     : 0
saved_hangs       : 1
edges_found       : 6421
total_edges       : 45805
afl_version       : ++4.04c
command_line      : afl-fuzz -i in -o out -- ./harness: x
";

	#[test]
	fn lines_are_found_by_their_names() {
		let stats = AflStats::parse(TEXT).unwrap();
		assert_eq!((stats.executions, stats.edges, stats.edges_of, stats.corpus), (718, 6421, 45805, 72));
		assert_eq!((stats.coverage_percent, stats.stability_percent, stats.per_second), (14.02, 100.0, 23.59));
		assert_eq!((stats.crashes, stats.hangs, stats.version.as_str()), (0, 1, "++4.04c"));
	}

	#[test]
	fn a_missing_line_is_named() {
		assert_eq!(AflStats::parse(&TEXT.replace("execs_done ", "execs ")), Err("execs_done"));
		assert_eq!(AflStats::parse(&TEXT.replace("6421", "many")), Err("edges_found"));
	}
}
