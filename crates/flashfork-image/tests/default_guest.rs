//! The default guest is made once, and again when part of it changes. Fetches Debian's kernel if
//! the cache has none.

use std::{fs, path::PathBuf, thread};

use flashfork_image::guest::default_guest;

#[test]
fn it_is_kept_until_the_agent_changes_whoever_makes_it() {
	let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
	let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap().join("flashfork/lab");
	let dir = tempfile::tempdir().unwrap();
	// Kernels are shared with the lab, guests are this test's own.
	fs::create_dir_all(cache.join("kernels")).unwrap();
	std::os::unix::fs::symlink(cache.join("kernels"), dir.path().join("kernels")).unwrap();
	let agent = dir.path().join("agent");
	fs::write(&agent, "one").unwrap();
	let make = || default_guest(dir.path(), &agent, &mut |_| ()).unwrap();
	let (first, second) = thread::scope(|scope| {
		let other = scope.spawn(make);
		(make(), other.join().unwrap())
	});
	assert_eq!(first, second);
	assert!(first.kernel.is_file());
	let content = fs::read(&first.initramfs).unwrap();
	let has = |name: &str| content.windows(name.len()).any(|window| window == name.as_bytes());
	for name in ["usr/bin/flashfork-agent", "usr/bin/busybox", "modules/virtio_mmio.ko", "modules/vsock.ko"] {
		assert!(has(name), "{name}");
	}
	fs::write(&agent, "two").unwrap();
	assert_ne!(make().initramfs, first.initramfs);
	fs::remove_file(&agent).unwrap();
	let error = default_guest(dir.path(), &agent, &mut |_| ()).unwrap_err();
	assert!(error.to_string().contains("guest agent"), "{error}");
	// No half-made file is left.
	let left = fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path().extension().is_none()).count();
	assert_eq!(left, 1, "only the kernels");
}
