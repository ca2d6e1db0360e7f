//! Debian's cloud kernels: found with apt-cache, downloaded with apt-get, unpacked with dpkg-deb.
//!
//! A kernel of the wanted series that is in the cache is used as it is, so that runs repeat and
//! need no network; emptying the cache fetches the newest again. No package is installed and root
//! is not needed, except where the host has no package lists yet.

use std::{
	fs::{self, File},
	path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::KernelFiles;
use crate::{
	ImageError,
	host::{APT_CACHE, APT_GET, DPKG_DEB, only_file},
};

pub(super) fn cached(series: &str, cache: &Path) -> Result<Option<KernelFiles>, ImageError> {
	let kernels = cache.join("kernels");
	if kernels.is_dir() { newest(series, &kernels) } else { Ok(None) }
}

pub(super) fn cached_or_downloaded(
	series: &'static str,
	cache: &Path,
	progress: &mut dyn FnMut(&str),
) -> Result<KernelFiles, ImageError> {
	let kernels = cache.join("kernels");
	fs::create_dir_all(&kernels).map_err(ImageError::io("cannot create", &kernels))?;
	if let Some(found) = newest(series, &kernels)? {
		return Ok(found);
	}
	let _lock = lock(&cache.join("kernels.lock"))?;
	// Another run may have fetched it while this one waited.
	if let Some(found) = newest(series, &kernels)? {
		return Ok(found);
	}
	let package = newest_package(series, progress)?;
	fetch(&package, &kernels, progress)?;
	newest(series, &kernels)?.ok_or(ImageError::NoKernel { series })
}

/// Holds an exclusive lock on `path` until the file is dropped.
fn lock(path: &Path) -> Result<File, ImageError> {
	let file = File::create(path).map_err(ImageError::io("cannot create", path))?;
	flock(&file, FlockOperation::LockExclusive).map_err(|errno| ImageError::io("cannot lock", path)(errno.into()))?;
	Ok(file)
}

/// The unpacked kernel of `series` with the highest version in `kernels`, if any.
fn newest(series: &str, kernels: &Path) -> Result<Option<KernelFiles>, ImageError> {
	let entries = kernels.read_dir().map_err(ImageError::io("cannot list", kernels))?;
	let mut best: Option<(Vec<u64>, PathBuf, String)> = None;
	for entry in entries {
		let entry = entry.map_err(ImageError::io("cannot list", kernels))?;
		let Ok(release) = entry.file_name().into_string() else {
			continue;
		};
		if !is_of_series(&release, series) {
			continue;
		}
		let version = numbers(&release);
		if best.as_ref().is_none_or(|(other, ..)| version > *other) {
			best = Some((version, entry.path(), release));
		}
	}
	Ok(best.map(|(_, dir, release)| KernelFiles {
		image: dir.join("boot").join(format!("vmlinuz-{release}")),
		// Debian 13 and later package the merged /usr.
		modules: ["lib/modules", "usr/lib/modules"]
			.map(|parent| dir.join(parent).join(&release))
			.into_iter()
			.find(|path| path.is_dir()),
	}))
}

fn is_of_series(release: &str, series: &str) -> bool {
	release.strip_prefix(series).is_some_and(|rest| rest.starts_with('.'))
}

/// The numbers in a version, for comparing: 6.12.100+deb12 is newer than 6.12.99+deb12.
fn numbers(version: &str) -> Vec<u64> {
	version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The package of the newest kernel of `series`, which is what Debian's meta package depends on.
fn newest_package(series: &'static str, progress: &mut dyn FnMut(&str)) -> Result<String, ImageError> {
	if let Some(package) = dependency_of_meta_package(series)? {
		return Ok(package);
	}
	// A fresh machine or container image has no package lists.
	if update_lists(progress)?
		&& let Some(package) = dependency_of_meta_package(series)?
	{
		return Ok(package);
	}
	Err(ImageError::NoKernel { series })
}

/// Updates the package lists where the user may, and says whether it did.
fn update_lists(progress: &mut dyn FnMut(&str)) -> Result<bool, ImageError> {
	if !rustix::process::geteuid().is_root() {
		return Ok(false);
	}
	progress("updating the package lists");
	APT_GET.success(APT_GET.command().args(["-q", "update"]))?;
	Ok(true)
}

/// Debian 12 names the meta package of its own series plainly and that of the other one with its
/// version; the release after it the other way round.
fn dependency_of_meta_package(series: &str) -> Result<Option<String>, ImageError> {
	let metas = [format!("linux-image-{series}-cloud-amd64"), "linux-image-cloud-amd64".to_owned()];
	for meta in metas {
		// Fails when there is no such package; that is an answer here, not an error.
		let output = APT_CACHE.output(APT_CACHE.command().args(["depends", &meta]))?;
		let found = image_package(&String::from_utf8_lossy(&output.stdout), series);
		if found.is_some() {
			return Ok(found);
		}
	}
	Ok(None)
}

fn image_package(depends: &str, series: &str) -> Option<String> {
	depends
		.lines()
		.filter_map(|line| line.trim().strip_prefix("Depends: "))
		.find(|name| name.strip_prefix("linux-image-").is_some_and(|release| is_of_series(release, series)))
		.map(str::to_owned)
}

/// Downloads and unpacks `package`, then moves it into `kernels` in one step.
fn fetch(package: &str, kernels: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), ImageError> {
	progress(&format!("downloading {package}"));
	let work = tempfile::Builder::new()
		.prefix(".download-")
		.tempdir_in(kernels)
		.map_err(ImageError::io("cannot create a directory in", kernels))?;
	let download = || APT_GET.success(APT_GET.command().args(["-q", "download", package]).current_dir(work.path()));
	if let Err(first) = download() {
		// Old lists name versions that the mirror has dropped.
		if !update_lists(progress)? {
			return Err(first);
		}
		download()?;
	}
	let deb = only_file(work.path(), "deb")?;
	let unpacked = work.path().join("unpacked");
	DPKG_DEB.success(DPKG_DEB.command().arg("-x").args([&deb, &unpacked]))?;
	let release = package.strip_prefix("linux-image-").unwrap_or(package);
	let place = kernels.join(release);
	fs::rename(&unpacked, &place).map_err(ImageError::io("cannot create", &place))
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn the_package_is_the_meta_packages_dependency() {
		let depends = "linux-image-6.12-cloud-amd64\n  Depends: linux-image-6.12.117+deb12-cloud-amd64\n";
		assert_eq!(image_package(depends, "6.12").as_deref(), Some("linux-image-6.12.117+deb12-cloud-amd64"));
		assert_eq!(image_package(depends, "6.1"), None);
		assert_eq!(image_package("", "6.1"), None);
	}

	#[test]
	fn the_newest_kernel_of_the_series_wins() {
		let cache = tempfile::tempdir().unwrap();
		let releases = [
			"6.1.0-9-cloud-amd64",
			"6.1.0-56-cloud-amd64",
			"6.12.99+deb12-cloud-amd64",
			"6.12.117+deb12-cloud-amd64",
			".download-x",
		];
		for release in releases {
			fs::create_dir_all(cache.path().join(release).join("lib/modules").join(release)).unwrap();
		}
		let newest = |series| newest(series, cache.path()).unwrap();
		let found = newest("6.1").unwrap();
		assert!(found.image.ends_with("6.1.0-56-cloud-amd64/boot/vmlinuz-6.1.0-56-cloud-amd64"));
		assert!(found.modules.unwrap().ends_with("lib/modules/6.1.0-56-cloud-amd64"));
		assert!(newest("6.12").unwrap().image.to_string_lossy().contains("6.12.117"));
		assert_eq!(newest("6.18"), None);
	}
}
