//! Manifests' bytes.

use super::manifest::Manifest;
use crate::{fuzz::fuzz, state::reseal};

#[test]
fn manifests() {
	assert!(Manifest::decode(include_bytes!("../../tests/corpus/manifest/good")).is_ok());
	fuzz("manifest", 5000, |input| {
		for bytes in [input.to_vec(), reseal(input)] {
			if let Ok(manifest) = Manifest::decode(&bytes) {
				assert_eq!(Manifest::decode(&manifest.encode().unwrap()).unwrap(), manifest);
			}
		}
	});
}
