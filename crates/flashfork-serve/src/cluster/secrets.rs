//! Functions' secrets, as the bucket has them: sealed with a key that the nodes have, and NATS has not.

use flashfork_terminal::CliError;
use ring::{
	aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
	rand::{SecureRandom, SystemRandom},
};
use std::path::Path;

/// The key of a cluster.
pub struct Key(LessSafeKey);

impl Key {
	/// Of a file's bytes.
	pub fn new(path: &Path, bytes: &[u8]) -> Result<Key, CliError> {
		let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| {
			let why = "has to have 32 random bytes: head -c 32 /dev/urandom makes them";
			CliError::Unable(format!("{} {why}", path.display()))
		})?;
		Ok(Key(LessSafeKey::new(key)))
	}

	/// Seals it; it opens with what it is about alone.
	pub fn seal(&self, about: &str, plain: &[u8]) -> Vec<u8> {
		// 96 random bits: enough for four billion secrets.
		let mut nonce = [0; NONCE_LEN];
		SystemRandom::new().fill(&mut nonce).expect("the kernel has random numbers");
		let mut text = plain.to_vec();
		let sealed = self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut text);
		sealed.expect("it is shorter than 64 GB");
		[&nonce[..], &text].concat()
	}

	/// What was sealed with this key, and is about this.
	pub fn open(&self, about: &str, sealed: &[u8]) -> Option<Vec<u8>> {
		let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
		let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
		let mut text = text.to_vec();
		Some(self.0.open_in_place(nonce, Aad::from(about), &mut text).ok()?.to_vec())
	}
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn what_is_sealed_opens_with_its_key_and_what_it_is_about() {
		let key = |byte| Key::new(Path::new("key"), &[byte; 32]).unwrap();
		let sealed = key(1).seal("f", b"secret");
		assert_eq!(key(1).open("f", &sealed).unwrap(), b"secret");
		assert!(!sealed.windows(6).any(|six| six == b"secret"));
		assert_ne!(key(1).seal("f", b"secret"), sealed);
		let mut changed = sealed.clone();
		changed[NONCE_LEN] ^= 1;
		for bad in [
			key(2).open("f", &sealed),
			key(1).open("g", &sealed),
			key(1).open("f", &changed),
			key(1).open("f", &sealed[..NONCE_LEN + 3]),
			key(1).open("f", b""),
		] {
			assert_eq!(bad, None);
		}
		assert!(Key::new(Path::new("key"), &[1; 31]).is_err());
	}
}
