//! Answers as text.

use flashfork_proto::api::{Clone, CloneState, Forked, Host, HostKvm, PoolStats, Stats, Template};

pub fn templates(templates: &[Template]) -> String {
	let mut lines =
		vec![format!("{:20} {:32} {:>8} {:>8} {:>10}", "TEMPLATE", "SHAPE", "ALIVE", "COUNTED", "RESIDENT")];
	lines.extend(templates.iter().map(|t| {
		let made = t.max_clones.map_or(t.clones_made.to_string(), |max| format!("{}/{max}", t.clones_made));
		let resident = format!("{} MiB", t.resident_bytes >> 20);
		format!("{:20} {:32} {:>8} {made:>8} {resident:>10}", t.name, t.shape.to_string(), t.clones_alive)
	}));
	lines.join("\n")
}

pub fn clones(clones: &[Clone]) -> String {
	let mut lines = vec![format!(
		"{:20} {:9} {:>8} {:>12} {:>10} {:>10}",
		"CLONE", "STATE", "PID", "FIRST EXIT", "READY", "MEMORY"
	)];
	lines.extend(clones.iter().map(|clone| {
		let state = state(clone.state);
		let first = format!("{:.3} ms", clone.first_exit_ns as f64 / 1e6);
		let ready = clone.ready_ns.map_or("-".into(), |ns| format!("{:.1} ms", ns as f64 / 1e6));
		let memory = clone.memory_bytes.map_or("-".into(), mebibytes);
		let notes: String =
			[&clone.ended, &clone.trouble].into_iter().flatten().map(|note| format!("  {note}")).collect();
		format!("{:20} {state:9} {:>8} {first:>12} {ready:>10} {memory:>10}{notes}", clone.name, clone.pid)
	}));
	lines.join("\n")
}

pub fn state(state: CloneState) -> &'static str {
	match state {
		CloneState::Starting => "starting",
		CloneState::Ready => "ready",
		CloneState::Ended => "ended",
	}
}

/// What came of a fork of `clone`.
pub fn forked(clone: &str, forked: &Forked) -> String {
	let mut parts = Vec::new();
	parts.extend(forked.template.as_ref().map(|template| templates(std::slice::from_ref(template))));
	if !forked.clones.is_empty() {
		parts.push(clones(&forked.clones));
	}
	let pause = forked.pause;
	let why = if pause.tracked {
		""
	} else {
		": what it wrote meanwhile could not be noted, so all was copied then; that needs Linux 6.7 and userfaultfd(2)"
	};
	parts.push(format!("{clone} stood still for {:.1} ms{why}", pause.total() as f64 / 1e6));
	parts.join("\n")
}

pub fn stats(stats: &Stats) -> String {
	let mut lines = vec![format!(
		"{}, {} alive, {} made by this daemon",
		count(stats.templates, "template"),
		count(stats.clones, "clone"),
		stats.clones_made
	)];
	let [templates, clones, shells] = [stats.template_bytes, stats.clone_bytes, stats.shell_bytes].map(mebibytes);
	lines.push(format!("memory: {templates} of templates, {clones} that clones add, {shells} of shells that wait"));
	lines.extend(stats.pools.iter().map(|pool| {
		let PoolStats { shape, ready, primed, preparing, misses } = pool;
		format!(
			"{shape}: {ready} shells ready, {primed} primed, {preparing} being prepared, {misses} claims had to wait"
		)
	}));
	lines.join("\n")
}

fn count(number: u64, thing: &str) -> String {
	format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

pub fn mebibytes(bytes: u64) -> String {
	format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

pub fn host(host: &Host) -> String {
	let verdict = match host.kvm {
		HostKvm::Linux => "KVM boots Linux guests",
		HostKvm::Untried => "KVM runs tiny guests; whether Linux boots is not known",
		HostKvm::Tiny => "KVM runs tiny guests only: Linux guests need the lab (docs/VIRTUAL_MACHINES.md)",
		HostKvm::None => "KVM runs no guest: all guests need the lab (docs/VIRTUAL_MACHINES.md)",
	};
	format!("{verdict}\n{}\n{}", host.detail, host.limits)
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_counts_for_a_template_is_told_from_what_a_daemon_has_made() {
		assert!(!templates(&[]).contains("MADE"));
		assert!(stats(&Stats::default()).contains("0 made by this daemon"));
	}

	#[test]
	fn nothing_is_named_that_is_not_installed() {
		let tiny = Host { kvm: HostKvm::Tiny, detail: String::new(), limits: String::new() };
		assert!(!host(&tiny).contains("scripts/"));
	}
}
