use super::*;

fn bytes(hex: &str) -> Vec<u8> {
	(0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

const WANTED: [u32; 7] = [9, 25, 28, 157, 289, 325, 440];

/// Where sites begin and how long their lines are.
fn sites(code: &[u8]) -> Result<Vec<(usize, usize)>, Unclear> {
	let mut found = Vec::new();
	for_each(
		code,
		None,
		|n| if WANTED.contains(&n) { Want::Must } else { Want::No },
		|s| {
			found.push((s.at, s.line));
			Ok(())
		},
	)?;
	Ok(found)
}

#[test]
fn every_place_of_a_byte_is_found() {
	let places = |code: &[u8]| places_of(7, code).collect::<Vec<_>>();
	assert_eq!(places(&[]), []);
	assert_eq!(places(&[1]), []);
	assert_eq!(places(&[7, 1, 7, 7]), [0, 2, 3]);
	assert_eq!(places(&[1, 2, 7]), [2]);
}

/// Beginnings of functions, from the packages of Debian 11, 12 and 13.
#[test]
fn functions_of_glibc_2_31_to_2_41_are_recognised() {
	for (what, code, at) in [
		("madvise, all of them", "b81c0000000f05483d01f0ffff", 0),
		("posix_madvise, all of them", "31c083fa047409b81c0000000f05f7d8c3662e0f", 7),
		("process_madvise 2.36", "4989cab8b80100000f05483d01f0ffff", 3),
		("mremap 2.31", "4989cab8190000000f05483d01f0ffff", 3),
		(
			"mremap 2.36 and 2.41",
			"4883ec584c8944244064488b042528000000488944241831c083f907775a4189ca4531c0f6c1067527b8190000000f05483d00f0ffff",
			41,
		),
		("mlock2, all of them", "85d2742cb8450100000f05483d00f0ffff", 4),
		(
			"prctl 2.36",
			"4883ec584989ca4889742428488954243048894c24384c8944244064488b042528000000488944241831c0488d442460c70424180000004889442408488d4424204889442410b89d0000000f05483d00f0ffff",
			70,
		),
		("the same where calls are tracked (endbr64)", "f30f1efab81c0000000f05483d01f0ffff", 4),
	] {
		assert_eq!(sites(&bytes(code)), Ok(vec![(at, 5)]), "{what}");
	}
	// mmap of 2.41, which ors a flag in between; signalfd, which loads another register.
	assert_eq!(sites(&bytes("31ffb8090000004183ca400f054889c7")), Ok(vec![(2, 9)]));
	assert_eq!(sites(&bytes("4189d2b821010000ba080000000f05483d")), Ok(vec![(3, 10)]));
}

#[test]
fn functions_of_musl_are_recognised() {
	for (what, code, at, line) in [
		("madvise", "4883ec084863d2b81c0000000f054889c7e8caee", 7, 5),
		("mmap", "4d63c0b8090000004c89e70f054889c7", 3, 8),
		("mremap", "4c63d5b8190000000f054889c7e8f9ec", 3, 5),
	] {
		assert_eq!(sites(&bytes(code)), Ok(vec![(at, line)]), "{what}");
	}
}

/// Whole, from the packages of Debian 11, 12 and 13.
#[test]
fn the_function_that_takes_any_number_is_recognised() {
	for (what, code, at, line) in [
		("glibc, all of them", "4889f84889f74889d64889ca4d89c24d89c84c8b4c24080f05483d01f0ffff", 18, 5),
		(
			"musl 1.2.2",
			"4883ec58 4889f8 4d89c2 4889742428 488d742420 48894c2438 4889f1 4c89442440 4d89c8 4c894c2448 4c8b4c2460 \
			 4889542430 488b7e08 64488b142528000000 4889542418 31d2 488d542460 4889742410 488b7610 4889542408 488b5118 \
			 c7042408000000 0f05 4889c7",
			94,
			7,
		),
		(
			"musl 1.2.5",
			"f30f1efa 4883ec58 4889f8 4d89c2 4889542430 488d542420 4c89442440 4d89c8 4c894c2448 4c8b4c2460 4889742428 \
			 48894c2438 488b7a08 64488b342528000000 4889742418 488d742460 4889542410 c7042428000000 4889742408 488b7210 \
			 488b5218 0f05 4889c7",
			87,
			13,
		),
	] {
		let code = bytes(&code.replace(' ', ""));
		assert_eq!(site_by_number(&code, 0), Some(Site { at, line }), "{what}");
	}
	for (what, code) in [
		("a branch in between", "4889f84c8b4c240874000f05"),
		("another function first", "4889f84c8b4c2408e8000000000f05"),
		("no room for a jump", "4889f84889f70f05"),
		("no room behind the number", "4c8b4c24084889f80f05"),
		("a breakpoint", "cc4889f84c8b4c24080f05"),
		("cut off", "4889f84c8b4c2408"),
	] {
		assert_eq!(site_by_number(&bytes(code), 0), None, "{what}");
	}
}

#[test]
fn numbers_that_lead_to_no_call_are_left_alone() {
	for code in [
		"b81c000000c30f05",         // returned
		"b819000000e8000000000f05", // given to a function, which changes eax
		"b81900000089c631c00f05",   // moved, and another number taken
		"b819000000b8270000000f05", // the same
		"b80900000048c7c0270000000f05",
	] {
		assert_eq!(sites(&bytes(code)), Ok(vec![]), "{code}");
	}
}

#[test]
fn what_is_not_understood_is_said() {
	for (what, code) in [
		("a branch in between", "b81c00000074020f05"),
		("a jump to a call", "b81c000000eb010f0f05"),
		("another register, or the end of the instruction before", "41b81c0000000f05"),
		("relative to its own address", "b81c000000488b3d000000000f05"),
		("unknown, with a call behind", "b81c000000c5f877900f05"),
	] {
		assert!(sites(&bytes(code)).is_err(), "{what}");
	}
	// A breakpoint hides the number.
	assert_eq!(sites(&bytes("cc1c0000000f05483d01f0ffff")), Ok(vec![]));
}

#[test]
fn bytes_at_random_do_no_harm() {
	let mut state = 1u64;
	let mut code = vec![0; 1 << 16];
	for byte in &mut code {
		state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
		*byte = match state >> 60 {
			0..4 => 0xb8,
			4 => 0x0f,
			5 => 0x05,
			6..9 => 0,
			_ => (state >> 33) as u8,
		};
	}
	for start in 0..512 {
		let _ = for_each(
			&code[start..],
			Some(0),
			|_| Want::Must,
			|s| {
				assert!(code[start + s.at + s.line..].starts_with(&SYSCALL));
				Ok(())
			},
		);
	}
}
