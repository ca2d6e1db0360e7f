//! Java programs that know nothing of clones: `flashfork.Launch`, a class of flashfork.jar, makes templates of them.

use std::{
	ffi::{OsStr, OsString},
	path::Path,
};

/// The class, as it is named on `java`'s command line in front of the program's own.
const LAUNCH: &str = "flashfork.Launch";

/// Options of `java` that name the class path, in the next argument or behind an equals sign.
const CLASS_PATH: [&str; 3] = ["-cp", "-classpath", "--class-path"];

/// Whether a command runs `java`.
pub fn is_here(command: &[OsString]) -> bool {
	command.first().is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("java")))
}

/// Whether it does so with the launcher.
pub fn launches(command: &[OsString]) -> bool {
	is_here(command) && command.iter().any(|argument| argument == LAUNCH)
}

/// Puts a jar at the end of the class path of such a command. `variable`: what `CLASSPATH` says, which counts where
/// there is no such option.
pub fn add_to_class_path(command: &mut Vec<OsString>, jar: &Path, variable: Option<&OsStr>) {
	let end = command.iter().position(|argument| argument == LAUNCH).unwrap_or(command.len());
	let append = |path: &mut OsString| {
		path.push(":");
		path.push(jar);
	};
	// The last one counts.
	for place in (1..end).rev() {
		if CLASS_PATH.iter().any(|option| command[place - 1] == *option) {
			return append(&mut command[place]);
		}
		if command[place].as_encoded_bytes().starts_with(b"--class-path=") {
			return append(&mut command[place]);
		}
	}
	let mut path = variable.filter(|path| !path.is_empty()).unwrap_or(OsStr::new(".")).to_owned();
	append(&mut path);
	command.splice(end..end, [CLASS_PATH[0].into(), path]);
}

#[cfg(test)]
mod tests {
	use super::*;

	fn command(words: &str) -> Vec<OsString> {
		words.split(' ').map(OsString::from).collect()
	}

	#[test]
	fn the_launcher_is_known_by_its_name() {
		assert!(launches(&command("/usr/bin/java -cp a.jar flashfork.Launch Main x")));
		assert!(!launches(&command("java -cp a.jar Main")) && !launches(&command("echo flashfork.Launch")));
	}

	#[test]
	fn the_jar_is_on_the_class_path() {
		let added = |words, variable: Option<&str>| {
			let mut command = command(words);
			add_to_class_path(&mut command, Path::new("/f.jar"), variable.map(OsStr::new));
			command.join(OsStr::new(" ")).into_string().unwrap()
		};
		for (words, want) in [
			("java -cp a:b flashfork.Launch Main -cp c", "java -cp a:b:/f.jar flashfork.Launch Main -cp c"),
			(
				"java -cp a -classpath b -Xint flashfork.Launch M",
				"java -cp a -classpath b:/f.jar -Xint flashfork.Launch M",
			),
			("java --class-path=a flashfork.Launch M", "java --class-path=a:/f.jar flashfork.Launch M"),
			("java -Xint flashfork.Launch M", "java -Xint -cp .:/f.jar flashfork.Launch M"),
		] {
			assert_eq!(added(words, None), want);
		}
		assert_eq!(added("java flashfork.Launch M", Some("x.jar")), "java -cp x.jar:/f.jar flashfork.Launch M");
	}
}
