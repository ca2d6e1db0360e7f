use super::*;

#[test]
fn lines_come_whole_and_in_order() {
	let mut lines = Vec::new();
	for_each_line(c"/proc/self/status", |line| lines.push(String::from_utf8_lossy(line).into_owned())).unwrap();
	assert!(lines[0].starts_with("Name:"));
	assert!(lines.len() > 20 && lines.iter().all(|l| l.contains(':')), "{lines:?}");
	assert_eq!(status_field(b"Pid:"), Some(u64::from(std::process::id())));
}

#[test]
fn long_lines_are_cut_and_the_next_one_is_whole() {
	use std::os::unix::ffi::OsStrExt;
	let mut file = tempfile::NamedTempFile::new().unwrap();
	std::io::Write::write_all(&mut file, format!("{}\nshort\n", "x".repeat(9000)).as_bytes()).unwrap();
	let path = std::ffi::CString::new(file.path().as_os_str().as_bytes()).unwrap();
	let mut lengths = Vec::new();
	for_each_line(&path, |line| lengths.push(line.len())).unwrap();
	assert_eq!(lengths, [4000, 5]);
}

#[test]
fn mappings_are_told_from_fields() {
	let m = Mapping::parse(b"7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ").unwrap();
	assert_eq!((m.start, m.end, m.private, m.name), (0x7f0000000000, 0x7f0000200000, true, &b""[..]));
	let m = Mapping::parse(b"1000-2000 r-xs 00001000 fe:00 77      /tmp/a b (deleted)").unwrap();
	assert_eq!((m.private, m.name), (false, &b"/tmp/a b (deleted)"[..]));
	for field in [&b"Anonymous:          8 kB"[..], b"VmFlags: rd wr mr", b"Private_Clean: 0 kB", b""] {
		assert!(Mapping::parse(field).is_none());
	}
}

#[test]
fn smaps_fields_are_summed_over_a_range_alone() {
	let block = vec![1u8; 8 << 20];
	let at = block.as_ptr() as usize;
	let rss = smaps_bytes(at - 0x10_0000..at + 1, &[b"Rss:"]).unwrap();
	assert!(rss >= 8 << 20, "{rss}");
	assert_eq!(smaps_bytes(0..1, &[b"Rss:"]), Ok(0));
}

#[test]
fn decimals() {
	assert_eq!(decimal(b"   123 kB"), Some(123));
	assert_eq!(decimal(b"kB"), None);
	assert_eq!(decimal(b""), None);
}
