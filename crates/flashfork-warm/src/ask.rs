//! Command to template.

use crate::{Reader, Writer};

/// What the command asks of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A clone. One connection is one clone: when the caller's end is closed, the clone is killed.
    Clone,
    /// What there is to know: [`crate::Facts`].
    Status,
    /// No more clones: the name goes at once, the process when its last clone has ended.
    Retire,
    /// A signal for the clone of this connection, or for its process group.
    Signal {
        /// Its number.
        signal: i32,
        /// Whether the whole group gets it, as from a terminal.
        group: bool,
    },
}

impl Ask {
    /// Bytes of a message.
    pub const LEN: usize = 24;

    /// As it is sent.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let (kind, signal, group) = match self {
            Ask::Clone => (1, 0, false),
            Ask::Status => (2, 0, false),
            Ask::Retire => (3, 0, false),
            Ask::Signal { signal, group } => (4, signal, group),
        };
        Writer::new().put(kind).signed(signal).put(u64::from(group)).0
    }

    /// As it was received; `None` for bytes that are none of these.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Ask> {
        let mut r = Reader(bytes);
        Some(match r.get()? {
            1 => Ask::Clone,
            2 => Ask::Status,
            3 => Ask::Retire,
            4 => Ask::Signal { signal: r.signed()?, group: r.get()? != 0 },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_comes_back_as_it_was_sent() {
        let signal = Ask::Signal { signal: 15, group: true };
        for ask in [Ask::Clone, Ask::Status, Ask::Retire, signal, Ask::Signal { signal: 2, group: false }] {
            assert_eq!(Ask::decode(&ask.encode()), Some(ask));
        }
    }

    #[test]
    fn nonsense_is_none() {
        assert_eq!(Ask::decode(&[]), None);
        assert_eq!(Ask::decode(&[9; Ask::LEN]), None);
        assert_eq!(Ask::decode(&Ask::Signal { signal: 1, group: false }.encode()[..12]), None);
    }
}
