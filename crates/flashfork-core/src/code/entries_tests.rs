//! Random code, of which every instruction is decoded, against what the search for ways finds.

use super::{flow_tests::Random, tests::Bytes, *};

/// An instruction that leads to an address, or has it as a constant, to stand at `at`.
fn leading(random: &mut Random, at: usize, to: usize) -> Vec<u8> {
	let mut code = match random.below(11) {
		0 => vec![0xe8],
		1 => vec![0xe9],
		2 => vec![0x0f, 0x80 | random.below(16) as u8],
		3 => vec![0x48, 0x8d, 0x05 | (random.below(8) as u8) << 3],
		4 => vec![0xc7, 0xf8],
		kind => {
			let mut code = match kind {
				5 => vec![0x68],
				6 => vec![0xb8 | random.below(8) as u8],
				7 => vec![0x48, 0xc7, 0xc0],
				8 => vec![0xc7, 0x44, 0x24, 0x08],
				9 => vec![0xc7, 0x84, 0x24, 0, 1, 0, 0],
				_ => vec![0x48, 0xb8 | random.below(8) as u8],
			};
			let bytes = if kind == 10 { 8 } else { 4 };
			code.extend(&to.to_le_bytes()[..bytes]);
			return code;
		}
	};
	code.extend((to as i64 - (at + code.len() + 4) as i64).to_le_bytes()[..4].iter());
	code
}

#[test]
fn every_way_that_decoding_finds_is_found_by_the_search() {
	const START: usize = 0x40_0000;
	let mut random = Random(0x9e37_79b9_7f4a_7c15);
	let scratch = Scratch::map().unwrap();
	let mut all = 0;
	for round in 0..60 {
		// Over several windows now and then.
		let len = if round % 10 == 0 { 2 * WINDOW + random.below(WINDOW) } else { 1 + random.below(20_000) };
		let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
		let entries = &mut scratch.entries;
		entries.clear();
		// Some elsewhere, near and far: other segments have code too.
		for _ in 0..1 + random.below(12) {
			let near = START + random.below(len);
			let place = if random.below(3) == 0 { near + (random.below(1 << 10) << 18) } else { near };
			let overlaps = entries.parts().iter().any(|part| part.start < place + 300 && place < part.end + 300);
			if !overlaps {
				entries.add(Range::new(place, place + 1 + random.below(200))).unwrap();
			}
		}
		let parts = entries.parts().to_vec();
		for _ in 0..len / 50 {
			let part = parts[random.below(parts.len())];
			let (at, to) = (random.below(len), part.start + random.below(part.len()));
			let code = leading(&mut random, START + at, to);
			let end = (at + code.len()).min(len);
			bytes[at..end].copy_from_slice(&code[..end - at]);
		}
		let ranges = [Range::new(START, START + len)];
		let fixed = round % 2 == 0;
		let code = Code { ranges: &ranges, data: &[], kind: Kind::Unlisted, fixed };
		let memory = &mut Bytes(START, &bytes);
		let lookup = if round % 3 == 0 { Lookup::NONE } else { Lookup::ask() };
		if scratch.entries.search(memory, &code, lookup) == Err(Failed::Full) {
			continue;
		}
		let found = scratch.entries.ways().to_vec();
		for at in 0..len {
			// Jumps with a distance of one byte are not searched for in this way.
			let is_far = |i: &Instruction| i.jumps().is_none_or(|by| i8::try_from(by).is_err());
			let Some(i) = Instruction::decode(&bytes[at..]).filter(is_far) else { continue };
			let (address, end) = (START + at, START + at + i.len);
			let relative = i.jumps().or(i.calls()).or(i.names()).map(|by| end.wrapping_add_signed(by));
			let constant = i.constant().filter(|_| fixed);
			let Some(to) = relative.or(constant) else { continue };
			let is_inside = |part: &&Range| part.contains(to) && part.start < to;
			let Some(part) = parts.iter().find(is_inside) else { continue };
			let leads = |i: &Instruction| i.jumps().or(i.calls()).or(i.names()).is_some() || i.constant().is_some();
			let is_known = relative.is_some() && Range::new(part.start - LONGEST, part.end).contains(address);
			if is_known || !is_instruction(memory, &code, end - 1, leads) {
				continue;
			}
			all += 1;
			let is_found = found.iter().any(|way| way.to == to && way.from == end - 1);
			assert!(is_found, "{:x?} at {address:x} leads to {to:x} in {part:x?}", &bytes[at..at + i.len]);
		}
	}
	scratch.unmap();
	assert!(all > 1000, "there are ways: {all}");
}
