use super::*;

#[test]
fn numbers() {
	assert_eq!(decimal(b"  42 kB"), Some(42));
	assert_eq!(number(b"7ff0-80", 16), Some(0x7ff0));
	assert_eq!(decimal(b"max"), None);
	assert_eq!(decimal(b"99999999999999999999999"), None);
}

#[test]
fn paths_under_proc() {
	assert_eq!(ProcPath::of(1234567).push(b"/task/").number(0).push(b"/stat").as_c(), c"/proc/1234567/task/0/stat");
	let long = ProcPath::of(1).push(&[b'x'; 57]);
	assert_eq!(long.as_c(), c"/proc/1", "what doesn't fit is left out");
}

#[test]
fn fields_match_whole_keys_only() {
	let text = b"MemTotal:  5 kB\nMemAvailable:   7 kB\ninactive_file 9\n";
	assert_eq!(field(text, b"MemAvailable"), Some(7));
	assert_eq!(field(text, b"inactive_file"), Some(9));
	assert_eq!(field(text, b"Mem"), None);
	assert_eq!(field(text, b"active_file"), None);
}

#[test]
fn lines_across_buffer_ends() {
	let path = std::env::temp_dir().join(format!("flashfork-lines-{}", std::process::id()));
	std::fs::write(&path, "one\ntwo three\n\nfour").unwrap();
	let c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
	let mut buf = [0u8; 10];
	let mut lines = Lines::open(&c, &mut buf).unwrap();
	let mut seen = Vec::new();
	while let Some(l) = lines.next().unwrap() {
		seen.push(String::from_utf8(l.to_vec()).unwrap());
	}
	assert_eq!(seen, ["one", "two three", "", "four"]);
	let mut tiny = [0u8; 5];
	let mut lines = Lines::open(&c, &mut tiny).unwrap();
	assert_eq!(lines.next().unwrap(), Some(&b"one"[..]));
	assert_eq!(lines.next(), Err(Errno::E2BIG));
	std::fs::remove_file(path).unwrap();
}
