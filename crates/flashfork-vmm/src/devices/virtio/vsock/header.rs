//! A packet's header.

use virtio_vsock::packet::{PKT_HEADER_SIZE, VsockPacket};

/// All its fields, by their names in virtio 1.2, 5.10.6.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header {
	pub src_cid: u64,
	pub dst_cid: u64,
	pub src_port: u32,
	pub dst_port: u32,
	pub len: u32,
	pub kind: u16,
	pub op: u16,
	pub flags: u32,
	pub buf_alloc: u32,
	pub fwd_cnt: u32,
}

pub(super) type Bytes = [u8; PKT_HEADER_SIZE];

impl Header {
	pub(super) fn decode(bytes: &Bytes) -> Self {
		let mut place = [0; PKT_HEADER_SIZE];
		let mut packet = packet(&mut place);
		packet.set_header_from_raw(bytes).expect("a header's bytes");
		Self {
			src_cid: packet.src_cid(),
			dst_cid: packet.dst_cid(),
			src_port: packet.src_port(),
			dst_port: packet.dst_port(),
			len: packet.len(),
			kind: packet.type_(),
			op: packet.op(),
			flags: packet.flags(),
			buf_alloc: packet.buf_alloc(),
			fwd_cnt: packet.fwd_cnt(),
		}
	}

	pub(super) fn encode(&self) -> Bytes {
		let mut bytes = [0; PKT_HEADER_SIZE];
		packet(&mut bytes)
			.set_src_cid(self.src_cid)
			.set_dst_cid(self.dst_cid)
			.set_src_port(self.src_port)
			.set_dst_port(self.dst_port)
			.set_len(self.len)
			.set_type(self.kind)
			.set_op(self.op)
			.set_flags(self.flags)
			.set_buf_alloc(self.buf_alloc)
			.set_fwd_cnt(self.fwd_cnt);
		bytes
	}
}

fn packet(bytes: &mut Bytes) -> VsockPacket<'_, ()> {
	// SAFETY: `bytes` is borrowed while the packet lives, so nobody else uses them.
	unsafe { VsockPacket::new(bytes, None) }.expect("a header's length")
}

#[cfg(test)]
mod tests {
	use super::*;

	#[test]
	fn every_field_has_a_place_of_its_own() {
		let header = Header {
			src_cid: 1,
			dst_cid: 2,
			src_port: 3,
			dst_port: 4,
			len: 5,
			kind: 6,
			op: 7,
			flags: 8,
			buf_alloc: 9,
			fwd_cnt: 10,
		};
		assert_eq!(Header::decode(&header.encode()), header);
		assert_eq!(header.encode()[24..32], [5, 0, 0, 0, 6, 0, 7, 0], "virtio 1.2: length at 24, type, operation");
	}
}
