use super::*;

/// What `judge` says of a VMA with these flags, more than the harmless ones of ordinary memory.
fn judged(header: &str, flags: &str) -> Result<(), Reason> {
	let file = std::env::temp_dir().join(format!("flashfork-smaps-{}", std::process::id()));
	std::fs::write(&file, format!("1000-2000 {header}\nVmFlags: rd wr mr mw me ac {flags}\n")).unwrap();
	let path = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
	let mut verdict = None;
	crate::proc::vma::for_each(&path, &mut [0; 4096], |v| {
		verdict = Some(judge(v, true));
		Ok(())
	})
	.unwrap();
	std::fs::remove_file(file).unwrap();
	verdict.unwrap()
}

#[test]
fn every_flag_means_its_reason_and_an_unknown_one_stops_a_seal() {
	let anonymous = "rw-p 00000000 00:00 0 ";
	assert_eq!(judged(anonymous, ""), Ok(()));
	assert_eq!(judged(anonymous, "nr sd hg"), Ok(()));
	for device in ["io", "pf", "mm"] {
		assert_eq!(judged(anonymous, device), Err(Reason::Device));
	}
	assert_eq!(judged(anonymous, "zz"), Err(Reason::UnknownFlag));
	assert_eq!(judged(anonymous, "ss"), Err(Reason::ShadowStack));
	assert_eq!(judged(anonymous, "gu"), Err(Reason::GuardRegion));
	assert_eq!(judged(anonymous, "wf dd dp"), Err(Reason::Droppable));
	assert_eq!(judged("rw-p 00000000 00:10 7 /anon_hugepage (deleted)", "ht"), Err(Reason::HugeTlb));
	assert_eq!(judged("rw-s 00000000 00:10 7 /anon_hugepage (deleted)", "ht"), Err(Reason::HugeTlb));
	let more_than_there_is_room_for = "hg ".repeat(30);
	assert_eq!(judged(anonymous, &more_than_there_is_room_for), Err(Reason::UnknownFlag));
}

#[test]
fn every_refusal_of_a_process_has_a_cure() {
	for row in TABLE.iter().filter(|row| row.scope == Scope::Process) {
		assert!(row.reason.cure().is_some(), "{}", row.name);
	}
	assert!(Reason::LowMemory.cure().is_some(), "unseal refuses with it");
	assert_eq!(Reason::Shared.cure(), None);
}

#[test]
fn names_are_unique() {
	let mut names: Vec<_> = TABLE.iter().map(|r| r.name).collect();
	names.sort_unstable();
	names.dedup();
	assert_eq!(names.len(), TABLE.len());
}
