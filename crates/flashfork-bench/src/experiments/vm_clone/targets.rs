//! The project's promises about clones of virtual machines, checked against what was measured: shown, never asserted.

use super::{
	GuestKind,
	found::{FIRST_EXIT, FIRST_REPLY, Method, rounds as of, sizes},
};
use crate::{prelude::*, subjects::vm_host::MemoryPages};

const MB: u64 = 1 << 20;
const CLONE: Method = Method::Clone(MemoryPages::Small);
const PRIMED: Method = Method::Primed(MemoryPages::Small);
const COLD_BOOT: Method = Method::ColdBoot(MemoryPages::Small);

/// The promises about guests that were measured, with what the records say about them.
pub fn check(document: &Document, guest: GuestKind) -> Vec<Target> {
	match guest {
		GuestKind::Tiny => tiny(document),
		GuestKind::Linux => linux(document),
	}
}

fn tiny(document: &Document) -> Vec<Target> {
	let first_exit = |method| of(document, GuestKind::Tiny, method, 256 * MB, FIRST_EXIT);
	let time = |what: &str, method, quantile, most| {
		let found = first_exit(method).as_ref().and_then(|rounds| quantile_of(rounds, quantile));
		Target::at_most(what, most, Unit::Microseconds, found)
	};
	vec![
		time("tiny guest of 256M, request to first exit: median", CLONE, 0.5, 350.0),
		time("tiny guest of 256M, request to first exit: 99 %", CLONE, 0.99, 1000.0),
		time("the same of a primed shell: median", PRIMED, 0.5, 200.0),
		time("the same of a primed shell: 99 %", PRIMED, 0.99, 700.0),
	]
}

fn linux(document: &Document) -> Vec<Target> {
	let rounds = |method, size, measure| of(document, GuestKind::Linux, method, size, measure);
	let ratio = |over, under| -> Option<Ratio> { ratio_of_medians(&over?, &under?) };
	// What the monitor makes where it can.
	let there = |&size: &u64| rounds(Method::Clone(MemoryPages::Thp), size, FIRST_EXIT).is_some();
	let made = if sizes(document, GuestKind::Linux).iter().any(there) { MemoryPages::Thp } else { MemoryPages::Small };
	let [clone, primed] = Method::claims(made);
	let faster = |size, name: &str| {
		let than = |method| ratio(rounds(COLD_BOOT, size, FIRST_REPLY), rounds(method, size, FIRST_REPLY));
		let what = format!("Linux guest of {name}, first reply: boot ÷ ");
		[
			Target::at_least(format!("{what}primed clone"), 90.0, than(primed)),
			Target::at_least(format!("{what}clone"), 60.0, than(clone)),
		]
	};
	let sizes = ratio(rounds(clone, 1024 * MB, FIRST_EXIT), rounds(clone, 128 * MB, FIRST_EXIT));
	let exit = Target::at_most("Linux guest, request to first exit: 1G ÷ 128M", 1.2, Unit::Times, sizes);
	[faster(128 * MB, "128M"), faster(1024 * MB, "1G")].into_iter().flatten().chain([exit]).collect()
}
