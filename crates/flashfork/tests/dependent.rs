//! A program outside this workspace with the library as a path dependency, built as `cargo build` does it: nothing is
//! optimised there, and frames are many times as large.

use std::{fs, path::Path, process::Command};

const MANIFEST: &str = r#"
[package]
name = "dependent"
edition = "2024"

[dependencies]
flashfork = { path = "PATH" }

[workspace]
"#;

const PROGRAM: &str = r#"
use flashfork::{Forked, SealOptions, SnapshotOptions, Threads};
use std::hint::black_box;

fn sum(memory: &[u8]) -> usize {
	black_box(memory).iter().step_by(4096).map(|byte| *byte as usize).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
	let mut warm = black_box(vec![1u8; 32 << 20]);
	let report = flashfork::seal(&SealOptions::default())?;
	assert!(report.sealed_bytes >= 30 << 20, "{report:?}");
	// SAFETY: this program has one thread.
	match unsafe { flashfork::fork()? } {
		Forked::Child => std::process::exit(i32::from(sum(&warm) != (32 << 20) / 4096)),
		Forked::Parent(_) => {}
	}
	// By mremap, and what the C library gives back to the kernel.
	warm.resize(48 << 20, 1);
	assert_eq!(sum(&warm), (48 << 20) / 4096);
	drop(black_box(vec![2u8; 64 << 20]));
	flashfork::unseal()?;
	let with_threads = SealOptions { threads: Threads::Stop, ..Default::default() };
	let sleeper = std::thread::spawn(|| std::thread::park());
	flashfork::seal(&with_threads)?;
	flashfork::unseal()?;
	sleeper.thread().unpark();
	sleeper.join().unwrap();
	let turn = flashfork::snapshot(&SnapshotOptions::default())?;
	assert_eq!(sum(&warm), (48 << 20) / 4096);
	warm.fill(turn as u8 + 2);
	if turn < 3 {
		// SAFETY: nothing outside memory is relied on.
		return Err(unsafe { flashfork::restore(turn + 1) }.into());
	}
	println!("well");
	Ok(())
}
"#;

#[test]
fn a_program_that_is_not_optimised_seals() {
	let own = Path::new(env!("CARGO_MANIFEST_DIR"));
	let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dependent");
	fs::create_dir_all(place.join("src")).unwrap();
	fs::write(place.join("Cargo.toml"), MANIFEST.replace("PATH", own.to_str().unwrap())).unwrap();
	fs::write(place.join("src/main.rs"), PROGRAM).unwrap();
	// The versions that are here already.
	fs::copy(own.join("../../Cargo.lock"), place.join("Cargo.lock")).unwrap();
	let output = Command::new(env!("CARGO"))
		.args(["run", "--quiet", "--offline", "--manifest-path"])
		.arg(place.join("Cargo.toml"))
		.env("CARGO_TARGET_DIR", place.join("target"))
		.env_remove("RUSTFLAGS")
		.output()
		.unwrap();
	let said = String::from_utf8_lossy(&output.stderr);
	assert!(output.status.success() && output.stdout == b"well\n", "{}\n{said}", output.status);
}
