//! What clones that are alive take, each.

use super::runs;
use crate::prelude::*;
use std::os::fd::AsFd;

/// Bytes of each of so many clones that are alive at a time: pages that are its alone, and page tables, when all run.
pub fn of_each(names: &Path, name: &str, count: u32) -> Result<Vec<f64>> {
	let (input, _held) = std::io::pipe().or_cant("make a pipe")?;
	let clones = (0..count).map(|_| runs::start(names, name, &[], input.as_fd())).collect::<Result<Vec<_>, _>>()?;
	// Each has answered what it was stopped in.
	std::thread::sleep(std::time::Duration::from_millis(300));
	let bytes = clones.iter().map(|clone| bytes(clone.pid())).collect();
	for clone in clones {
		clone.kill().or_cant("end a clone")?;
		clone.wait().map_err(BenchError::unable)?;
	}
	bytes
}

/// Private pages (`smaps_rollup`) and page tables (`status`) of a process (proc(5)).
fn bytes(pid: i32) -> Result<f64> {
	let mut kilobytes = 0.0;
	for (file, fields) in [("smaps_rollup", &["Private_Clean:", "Private_Dirty:"][..]), ("status", &["VmPTE:"])] {
		let path = format!("/proc/{pid}/{file}");
		let text = std::fs::read_to_string(&path).or_cant(format_args!("read {path}"))?;
		kilobytes += fields.iter().filter_map(|field| number(&text, field)).sum::<f64>();
	}
	Ok(kilobytes * 1024.0)
}

fn number(text: &str, field: &str) -> Option<f64> {
	text.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok())
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn this_process_has_pages_of_its_own() {
		assert!(bytes(i32::try_from(std::process::id()).unwrap()).unwrap() > 4096.0);
		assert_eq!(number("A:   1 kB\nVmPTE:\t  52 kB\n", "VmPTE:"), Some(52.0));
	}
}
