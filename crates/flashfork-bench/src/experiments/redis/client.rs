//! The little of Redis's protocol (RESP) that is needed.

use crate::prelude::*;
use std::{
	io::{self, BufRead, BufReader, Read, Write},
	os::unix::net::UnixStream,
};

pub struct Client {
	stream: UnixStream,
	replies: BufReader<UnixStream>,
}

pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
	out.extend(format!("*{}\r\n", words.len()).bytes());
	for word in words {
		out.extend(format!("${}\r\n", word.len()).bytes());
		out.extend_from_slice(word);
		out.extend_from_slice(b"\r\n");
	}
}

fn failed(error: io::Error) -> BenchError {
	BenchError::system("talk to redis-server", error)
}

impl Client {
	pub fn connect(socket: &Path) -> io::Result<Self> {
		let stream = UnixStream::connect(socket)?;
		Ok(Self { replies: BufReader::with_capacity(1 << 18, stream.try_clone()?), stream })
	}

	pub fn send(&mut self, bytes: &[u8]) -> Result {
		self.stream.write_all(bytes).map_err(failed)
	}

	/// Reads one reply; its text, or that of a string. An error of Redis's is one here.
	pub fn reply(&mut self) -> Result<Vec<u8>> {
		let mut line = Vec::new();
		self.replies.read_until(b'\n', &mut line).map_err(failed)?;
		let Some((&kind, rest)) = line.strip_suffix(b"\r\n").and_then(|line| line.split_first()) else {
			return Err(failed(io::ErrorKind::UnexpectedEof.into()));
		};
		let text = String::from_utf8_lossy(rest);
		match kind {
			b'+' | b':' => Ok(rest.to_vec()),
			b'$' => {
				let Ok(len) = text.parse::<usize>() else { return Ok(Vec::new()) };
				let mut value = vec![0; len + 2];
				self.replies.read_exact(&mut value).map_err(failed)?;
				value.truncate(len);
				Ok(value)
			}
			_ => Err(unable!("redis-server says {text}")),
		}
	}

	pub fn ask(&mut self, words: &[&str]) -> Result<Vec<u8>> {
		let mut out = Vec::new();
		command(&mut out, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
		self.send(&out)?;
		self.reply()
	}
}

#[cfg(test)]
mod tests {
	#[test]
	fn commands_are_arrays_of_strings() {
		let mut out = Vec::new();
		super::command(&mut out, &[b"SET", b"k\r", b""]);
		assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$2\r\nk\r\r\n$0\r\n\r\n");
	}
}
