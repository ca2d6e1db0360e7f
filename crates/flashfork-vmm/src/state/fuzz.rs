//! Templates' bytes: what is read from files, and from shells that a guest may have taken over.

use super::{MachineState, envelope::reseal};
use crate::fuzz::fuzz_more;

/// The state of a machine of 4 MB and one CPU in which everything is zero: header, shape, no CPUID, not forked, one
/// vCPU, and as many zeros as that takes.
pub(crate) fn of_zeros() -> Vec<u8> {
	let mut bytes = [&b"FLFKVM\r\n"[..], &super::VERSION.to_le_bytes(), &[0; 12], &[4, 1, 0, 0, 0, 0, 0, 1]].concat();
	while MachineState::decode(&reseal(&bytes)).is_err() {
		assert!(bytes.len() < 1 << 16, "no number of zeros makes a state");
		bytes.push(0);
	}
	reseal(&bytes)
}

#[test]
fn states() {
	fuzz_more("state", vec![of_zeros()], 5000, |input| {
		// As it is, and as if whoever changed it knew of checksums.
		for bytes in [input.to_vec(), reseal(input)] {
			if let Ok(state) = MachineState::decode(&bytes) {
				let encoded = state.encode().unwrap();
				assert_eq!(MachineState::decode(&encoded).unwrap().encode().unwrap(), encoded);
			}
		}
	});
}
