//! The two files through which a run speaks to its guest: the settings that init reads, and the
//! command as a shell script.

use std::{ffi::OsStr, fmt::Write, os::unix::ffi::OsStrExt};

use flashfork_image::Module;

use crate::{LabError, Options};

pub(super) const USER_NAME: &str = "lab";

/// `/lab/config`: shell variables, one per line; what isn't asked for is empty.
pub(super) fn config(options: &Options, modules: &[Module]) -> String {
	let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
	let user = options.user.is_some_and(|id| id != 0);
	let mut text = String::new();
	let mut set = |name: &str, value: &str| {
		writeln!(text, "{name}='{value}'").expect("writing to a String cannot fail");
	};
	set("modules", &names.join(" "));
	set("swap", if options.swap_mib > 0 { "yes" } else { "" });
	set("thp", &options.thp.map_or_else(String::new, |mode| mode.to_string()));
	set("nested_kvm", if options.nested_kvm { "yes" } else { "" });
	set("memory_max", &options.memory_max.map_or_else(String::new, |bytes| bytes.to_string()));
	set("user", if user { USER_NAME } else { "" });
	text
}

/// `/lab/command`: sets the environment and becomes the command.
pub(super) fn command(options: &Options, command: &[&OsStr]) -> Result<Vec<u8>, LabError> {
	let mut script = b"#!/bin/sh\n".to_vec();
	let ordinary = options.user.is_some_and(|id| id != 0);
	let (user, home) = if ordinary { (USER_NAME, "/tmp") } else { ("root", "/root") };
	script.extend_from_slice(format!("export PATH=/usr/bin:/bin USER={user} HOME={home}\n").as_bytes());
	for (name, value) in &options.env {
		script.extend_from_slice(b"export ");
		script.extend_from_slice(name.as_bytes());
		script.push(b'=');
		quote(value, &mut script)?;
		script.push(b'\n');
	}
	script.extend_from_slice(b"exec");
	for argument in command {
		script.push(b' ');
		quote(argument, &mut script)?;
	}
	script.push(b'\n');
	Ok(script)
}

/// Appends `text` so that the shell takes it as one literal word.
fn quote(text: &OsStr, script: &mut Vec<u8>) -> Result<(), LabError> {
	script.push(b'\'');
	for byte in text.as_bytes() {
		match byte {
			0 => {
				return Err(LabError::Options {
					message: format!("{text:?} has a NUL byte, which no argument can have"),
				});
			}
			b'\'' => script.extend_from_slice(b"'\\''"),
			_ => script.push(*byte),
		}
	}
	script.push(b'\'');
	Ok(())
}

#[cfg(test)]
mod tests {
	use super::*;
	use crate::Thp;
	use std::process::Command;

	#[test]
	fn the_script_passes_words_and_environment_unchanged() {
		let words = ["/usr/bin/printf", "%s|", "it's", "", " two  words ", "$HOME `x` \\n", "a\nb"];
		let options = Options { env: vec![("LAB_WORD".into(), "it's $PATH".into())], ..Options::default() };
		let script = command(&options, &words.map(OsStr::new)).unwrap();
		let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
		assert_eq!(output.stdout, b"it's|| two  words |$HOME `x` \\n|a\nb|");

		let script = command(&options, &["/usr/bin/printenv", "LAB_WORD"].map(OsStr::new)).unwrap();
		let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
		assert_eq!(output.stdout, b"it's $PATH\n");
	}

	#[test]
	fn nul_bytes_are_refused() {
		assert!(command(&Options::default(), &[OsStr::new("a\0b")]).is_err());
	}

	#[test]
	fn settings_are_shell_variables() {
		let options = Options { thp: Some(Thp::Madvise), memory_max: Some(4096), user: Some(0), ..Options::default() };
		assert_eq!(
			config(&options, &[]),
			"modules=''\nswap=''\nthp='madvise'\nnested_kvm=''\nmemory_max='4096'\nuser=''\n"
		);
	}
}
