use super::*;
use crate::proc::vma::Kind;

fn described(range: Range, wanted: Wanted, by_list: bool) -> Vec<String> {
	let mut all = Vec::new();
	let each = |v: &Vma| {
		// The scratch memory of the list is one more, perhaps merged with a neighbour.
		if v.kind == Kind::File || wanted == Wanted::All {
			all.push(format!("{:x?}", (v.range, v.prot, v.shared, v.offset, v.inode, v.device, v.kind, v.name())));
		}
		Ok(())
	};
	if by_list { list_each(range, wanted, each) } else { for_each(range, wanted, each) }.unwrap();
	all
}

#[test]
fn both_ways_say_the_same() {
	let program = described as *const () as usize;
	let around = Range::new(program - (1 << 30), program + (1 << 30));
	let (asked, listed) = (described(around, Wanted::Files, false), described(around, Wanted::Files, true));
	assert!(asked.len() > 3, "{asked:#?}");
	assert_eq!(asked, listed);
	let code = described(around, Wanted::Executable, false);
	assert!(!code.is_empty() && code.len() < asked.len(), "{code:#?}");
	assert_eq!(code, described(around, Wanted::Executable, true));
	let page = Range::new(program, program + 1);
	assert_eq!(described(page, Wanted::All, false), described(page, Wanted::All, true));
	assert_eq!(described(page, Wanted::All, false).len(), 1);
}

#[test]
fn little_room_is_enough() {
	let mut counts = [0, 0];
	list_in_little_room(Range::ALL, Wanted::Files, &mut |_| {
		counts[0] += 1;
		Ok(())
	})
	.unwrap();
	for_each(Range::ALL, Wanted::Files, |_| {
		counts[1] += 1;
		Ok(())
	})
	.unwrap();
	assert!(counts[0] == counts[1] && counts[0] > 3, "{counts:?}");
}

#[test]
fn an_error_ends_it() {
	let mut seen = 0;
	for by_list in [false, true] {
		let each = |_: &Vma| {
			seen += 1;
			Err(Errno::E2BIG)
		};
		let result =
			if by_list { list_each(Range::ALL, Wanted::All, each) } else { for_each(Range::ALL, Wanted::All, each) };
		assert_eq!(result, Err(Errno::E2BIG));
	}
	assert_eq!(seen, 2);
}
