//! The sources of targets: Debian's packages, brought by apt without a change to this host, and kept.

use std::{fs, io};

use flate2::read::GzDecoder;

use super::{
	super::target::SQLITE,
	target::{Target, schema},
};
use crate::prelude::*;

pub fn obtain(target: Target, cache: &Path, run: &mut Run) -> Result<PathBuf> {
	let dir = cache.join("fuzz-sources");
	let unpacked = dir.join(target.as_ref());
	if unpacked.exists() {
		return Ok(unpacked);
	}
	let doing = format!("unpack the source of {}", target.as_ref());
	// Whole, or not there.
	let new = dir.join(format!("{}.new", target.as_ref()));
	let _ = fs::remove_dir_all(&new);
	fs::create_dir_all(&new).or_cant(&doing)?;
	match target.package() {
		Some(package) => {
			run.begin(&format!("the source of Debian's {package}, by apt"), 1);
			unpack(&download(package, &dir)?, &new)?;
			run.step();
		}
		None => {
			let mut file = fs::File::create(new.join("sqlite3.c")).or_cant(&doing)?;
			io::copy(&mut GzDecoder::new(SQLITE), &mut file).or_cant(&doing)?;
			fs::write(new.join("schema.h"), schema()).or_cant(&doing)?;
		}
	}
	fs::rename(&new, &unpacked).or_cant(&doing)?;
	Ok(unpacked)
}

/// Has apt bring a package's source as its authors have published it; returns the archive.
fn download(package: &str, dir: &Path) -> Result<PathBuf> {
	let missing = |why: String| unable!("the source of {package} can't be had by apt-get source {package}: {why}");
	let failed = |error: io::Error| missing(error.to_string());
	let lists = dir.join("lists");
	if !lists.exists() {
		fs::create_dir_all(lists.join("partial")).map_err(failed)?;
		source_entries(&dir.join("sources")).map_err(failed)?;
		// Some other vendor's entry may have no sources, which matters no more than that ours has them.
		let _ = apt(dir, &["update"]);
	}
	let before = archives(dir).map_err(failed)?;
	let output = apt(dir, &["source", "--download-only", "--tar-only", package]).map_err(failed)?;
	let after = archives(dir).map_err(failed)?;
	let new = after.into_iter().find(|path| !before.contains(path));
	new.ok_or_else(|| {
		// So that the next run asks anew.
		let _ = fs::remove_dir_all(&lists);
		let words = String::from_utf8_lossy(&output.stderr);
		missing(words.lines().find(|line| line.starts_with("E: ")).unwrap_or("no answer").to_owned())
	})
}

/// Runs apt with lists of its own, as any user may.
fn apt(dir: &Path, args: &[&str]) -> io::Result<std::process::Output> {
	let mut command = Command::new("apt-get");
	for (name, value) in [
		("Dir::Etc::SourceList", "/dev/null".into()),
		("Dir::Etc::SourceParts", dir.join("sources")),
		("Dir::State::Lists", dir.join("lists")),
		("Dir::Cache", dir.join("lists")),
	] {
		command.arg("-o").arg(format!("{name}={}", value.display()));
	}
	command.args(["-qq", "-o", "APT::Sandbox::User=root"]).args(args);
	command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null()).output()
}

/// This host's places of packages, as places of sources.
fn source_entries(to: &Path) -> io::Result<()> {
	fs::create_dir_all(to)?;
	let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
	for path in parts.chain([PathBuf::from("/etc/apt/sources.list")]) {
		let (Some(name), Ok(text)) = (path.file_name(), fs::read_to_string(&path)) else { continue };
		fs::write(to.join(name), of_sources(&text))?;
	}
	Ok(())
}

/// Entries of either form that name binary packages, as entries that name sources.
fn of_sources(text: &str) -> String {
	let line = |line: &str| match line {
		_ if line.starts_with("Types:") => "Types: deb-src\n".to_owned(),
		_ if line.starts_with("deb ") => format!("deb-src{}\n", &line[3..]),
		_ => format!("{line}\n"),
	};
	text.lines().map(line).collect()
}

fn archives(dir: &Path) -> io::Result<Vec<PathBuf>> {
	let all: Vec<PathBuf> = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
	Ok(all.into_iter().filter(|path| path.to_string_lossy().contains(".orig.tar.")).collect())
}

fn unpack(archive: &Path, to: &Path) -> Result {
	let failed = |why: String| unable!("can't unpack {}: {why}", archive.display());
	let mut tar = Command::new("tar");
	tar.arg("-xf").arg(archive).arg("-C").arg(to).args(["--strip-components=1", "--no-same-owner"]);
	let output = tar.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
	match output.status.success() {
		true => Ok(()),
		false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))),
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn places_of_packages_become_places_of_sources() {
		let old = "# a comment\ndeb [signed-by=/k] http://mirror/debian bookworm main\n";
		assert_eq!(of_sources(old), "# a comment\ndeb-src [signed-by=/k] http://mirror/debian bookworm main\n");
		let new = "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm\n";
		assert_eq!(of_sources(new), "Types: deb-src\nURIs: http://mirror/debian\nSuites: bookworm\n");
	}
}
