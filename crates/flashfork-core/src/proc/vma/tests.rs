use super::*;

#[test]
fn parses_header_lines() {
	let v = Vma::parse(b"7f0000000000-7f0000200000 rw-p 00000000 00:00 0 ").unwrap();
	assert_eq!(v.kind, Kind::Anonymous);
	assert_eq!(v.range.len(), 0x200000);
	assert_eq!(v.prot, PROT_READ | PROT_WRITE);
	let v = Vma::parse(b"1000-2000 r-xs 00001000 fe:00 77      /tmp/a b (deleted)").unwrap();
	assert_eq!((v.kind, v.shared, v.offset, v.inode), (Kind::File, true, 0x1000, 77));
	assert_eq!(v.name(), b"/tmp/a b (deleted)");
	let sealed = b"1000-2000 rw-p 10000000000 00:01 9   /memfd:flashfork:0000000001 (deleted)";
	assert_eq!(Vma::parse(sealed).unwrap().kind, Kind::Sealed);
	let shared = b"1000-2000 rw-s 10000000000 00:01 9   /memfd:flashfork:0000000001 (deleted)";
	assert_eq!(Vma::parse(shared).unwrap().kind, Kind::File);
	assert_eq!(Vma::parse(b"1000-2000 rw-p 0 00:00 0 [heap]").unwrap().kind, Kind::Anonymous);
	assert_eq!(Vma::parse(b"1000-2000 rw-p 0 00:00 0 [anon:x y]").unwrap().kind, Kind::Anonymous);
	assert_eq!(Vma::parse(b"1000-2000 rw-p 0 00:00 0 [stack]").unwrap().kind, Kind::Stack);
	assert_eq!(Vma::parse(b"1000-2000 r-xp 0 00:00 0 [vdso]").unwrap().kind, Kind::Kernel);
	assert_eq!(Vma::parse(b"1000-2000 rw-s 0 00:10 5 /[aio] (deleted)").unwrap().kind, Kind::AioRing);
	let not_ours = b"1000-2000 rw-p 10000000000 00:01 9   /memfd:flashfork:1 (deleted)";
	assert_eq!(Vma::parse(not_ours).unwrap().kind, Kind::File);
	assert!(Vma::parse(b"garbage").is_none());
}

#[test]
fn reads_this_process() {
	let mark = vec![1u8; 8 << 20];
	let at = mark.as_ptr() as usize + (4 << 20);
	let mut buf = vec![0u8; 64 * 1024];
	let mut found = None;
	let mut stacks = 0;
	for_each(c"/proc/self/smaps", &mut buf, |v| {
		if v.range.start <= at && at < v.range.end {
			found = Some(*v);
		}
		stacks += usize::from(v.kind == Kind::Stack);
		Ok(())
	})
	.unwrap();
	let v = found.unwrap();
	assert_eq!(v.kind, Kind::Anonymous);
	assert!(v.anonymous + v.swapped >= 7 << 20);
	assert!(v.flags.has(b"rd") && v.flags.has(b"wr") && !v.flags.has(b"dc"));
	assert_eq!(stacks, 1);
}
