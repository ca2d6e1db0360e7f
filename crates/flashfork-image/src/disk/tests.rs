use super::*;
use std::process::Command;

fn debugfs(image: &Path, request: &str) -> String {
	let output = Command::new("/usr/sbin/debugfs").args(["-R", request]).arg(image).output().unwrap();
	String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_directory_is_in_its_image_and_the_image_is_sound() {
	let dir = tempfile::tempdir().unwrap();
	let root = dir.path().join("root");
	fs::create_dir_all(root.join("etc/x")).unwrap();
	fs::write(root.join("etc/x/hello"), "hello").unwrap();
	std::os::unix::fs::symlink("x/hello", root.join("etc/link")).unwrap();
	for number in 0..3000 {
		fs::write(root.join(format!("etc/x/{number}")), "").unwrap();
	}
	let image = dir.path().join("image");
	from_dir(&root, &image, None).unwrap();
	assert_eq!(debugfs(&image, "cat /etc/x/hello"), "hello");
	assert!(debugfs(&image, "stat /etc/link").contains("\"x/hello\""));
	assert!(!debugfs(&image, "features").contains("has_journal"));
	assert!(Command::new("/usr/sbin/e2fsck").arg("-fn").arg(&image).output().unwrap().status.success());
	let metadata = fs::metadata(&image).unwrap();
	assert!(metadata.len() > FREE && metadata.blocks() * 512 < 64 << 20, "{metadata:?}");
	// Another one of the same name is refused, and leaves it alone.
	let error = from_dir(&root, &image, None).unwrap_err();
	assert!(matches!(error, ImageError::Exists { .. }), "{error}");
}

#[test]
fn what_does_not_fit_is_an_error_that_says_what_is_enough_and_leaves_nothing() {
	let dir = tempfile::tempdir().unwrap();
	let root = dir.path().join("root");
	fs::create_dir(&root).unwrap();
	fs::write(root.join("big"), vec![1; 16 << 20]).unwrap();
	for (number, given) in [8, 1].into_iter().enumerate() {
		let error = from_dir(&root, &dir.path().join("image"), Some(given)).unwrap_err();
		assert_eq!(dir.path().read_dir().unwrap().count(), 1 + number);
		let ImageError::TooSmall { needed: needed @ ..32, .. } = error else { panic!("{error}") };
		from_dir(&root, &dir.path().join(given.to_string()), Some(needed)).unwrap();
		fs::remove_file(root.join("big")).ok();
	}
	let error = from_dir(Path::new("/no/such"), &dir.path().join("image"), None).unwrap_err();
	assert!(error.to_string().contains("/no/such"), "{error}");
}
