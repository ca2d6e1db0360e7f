//! A test program again, in the lab: another kernel's KVM, nested.

use flashfork_lab::{Collected, Kernel, Lab, Options, Status, cache_dir};
use std::{env::var_os, time::Duration};

/// The tests of this program that `words` choose, of which there are so many, all pass on `kernel`, none is skipped.
pub fn pass(kernel: Kernel, parameters: &str, words: &[&str], tests: usize) {
	let options = Options {
		kernel,
		kernel_parameters: parameters.into(),
		memory_mib: 1024,
		nested_kvm: true,
		timeout: Duration::from_secs(600),
		..Options::default()
	};
	let program = std::env::current_exe().unwrap();
	let mut output = Collected::default();
	let lab = Lab::new(cache_dir(var_os("XDG_CACHE_HOME"), var_os("HOME")).expect("HOME is set")).unwrap();
	let words = [&[program.to_str().unwrap(), "--test-threads", "1"], words].concat();
	let outcome = lab.run(&options, &words, &mut output).unwrap();
	let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
	// Among them whether the guest's kernel has changed its mind about its TSC.
	let console = outcome.console_tail.join("\n");
	assert_eq!(outcome.status, Status::Exited(0), "{text}\n{errors}\n{console}");
	assert!(text.contains(&format!("{tests} passed")) && !errors.contains("skipped"), "{text}\n{errors}");
}
