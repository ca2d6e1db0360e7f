//! The rule for names.

/// Longest name of a template, in bytes.
pub const LONGEST_NAME: usize = 64;

/// What [`is_name`] asks for, in words.
pub const NAME_RULE: &str =
	"a name is 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter, digit or '_'";

/// Whether a template may have this name: so it is safe in paths and command lines, and never that of a hidden file.
#[must_use]
pub fn is_name(text: &str) -> bool {
	let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
	(1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn names_are_plain_words() {
		for good in ["py", "py3.11", "_x", "A-b_c.d", &"x".repeat(LONGEST_NAME)] {
			assert!(is_name(good), "{good}");
		}
		for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "a,b", "ä", &"x".repeat(LONGEST_NAME + 1)] {
			assert!(!is_name(bad), "{bad}");
		}
		assert!(NAME_RULE.contains(&LONGEST_NAME.to_string()));
	}
}
