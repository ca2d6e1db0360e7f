//! Variables read at a program's start: whether a caller's are those that the template was started with.

use crate::connection::Request;
use flashfork_warm::{Start, Tell, Why, variables::ALL};
use std::{
	ffi::{CStr, OsStr},
	fs::File,
	os::unix::{
		ffi::OsStrExt,
		fs::{FileExt, MetadataExt},
	},
};

/// What a caller is told in place of a clone, if they are others; where they can be read but once they are his clone's
/// affair. This process has those of its program.
pub fn told(program: &OsStr, request: &Request) -> Option<Tell> {
	let texts = texts(request)?;
	let caller = |name: &CStr| {
		let value = |text: &[u8]| text.strip_prefix(name.to_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
		texts.iter().find_map(|text| value(text)).unwrap_or_default()
	};
	let own = |name: &CStr| std::env::var_os(OsStr::from_bytes(name.to_bytes())).unwrap_or_default();
	let is_other = |name: &CStr| caller(name) != own(name).as_bytes();
	let mut others: Vec<&CStr> = ALL.into_iter().flatten().copied().filter(|name| is_other(name)).collect();
	let found = |path: &OsStr| {
		let files = std::env::split_paths(path).filter_map(|directory| directory.join(program).metadata().ok());
		files
			.filter(|about| about.is_file() && about.mode() & 0o111 != 0)
			.map(|about| (about.dev(), about.ino()))
			.next()
	};
	if !program.as_bytes().contains(&b'/')
		&& is_other(c"PATH")
		&& found(OsStr::from_bytes(&caller(c"PATH"))) != found(&own(c"PATH"))
	{
		others.push(c"PATH");
	}
	let first = others.first()?;
	Some(Tell::stale(Why::Variable, true, others.len() as u64, first.to_bytes()))
}

/// The strings of a caller's environment. None of what makes no sense, which his clone says.
fn texts(request: &Request) -> Option<Vec<Vec<u8>>> {
	let file = request.first()?.try_clone().map(File::from).ok()?;
	let mut bytes = vec![0; usize::try_from(file.metadata().ok().filter(std::fs::Metadata::is_file)?.len()).ok()?];
	file.read_exact_at(&mut bytes, 0).ok()?;
	let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
	let arguments = word(std::mem::offset_of!(Start, arguments))?;
	let variables = word(std::mem::offset_of!(Start, variables))?;
	let first = arguments.checked_add(1)?.checked_mul(8)?.checked_add(size_of::<Start>())?;
	let text = |at: usize| Some(bytes.get(at..)?.split(|b| *b == 0).next()?.to_vec());
	(0..variables).map(|i| text(word(first.checked_add(i.checked_mul(8)?)?)?)).collect()
}
