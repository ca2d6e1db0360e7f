//! The worker of `bench fault` and `bench access-mix`: a parent that forks and whose memory is then touched.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Instant;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::mix::{BLOCK, Piece, Walk};
use crate::subjects::engine::{self, Side};
use crate::subjects::parent::Spec;
use crate::subjects::{Facts, Method, PAGE, Region, WORDS_PER_PAGE, word};
use flashfork_measure::BenchError;
use flashfork_measure::sampling::Visit;
use flashfork_measure::worker::Subject;

/// A child that found other bytes than it should.
const WRONG_DATA: i32 = 3;

/// A prepared parent.
#[derive(Debug)]
pub(crate) struct AccessSubject {
    method: Method,
    region: Region,
    buffer: Vec<u64>,
    /// Whether the parent has written since the last seal.
    dirty: bool,
}

/// A request.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Forks; each child times its first write in the middle of the memory, one to the next page, and one far away.
    Faults { samples: usize },
    /// Forks once and goes through the memory while the child lives. Sealed memory that was written before is sealed
    /// anew first.
    Walk(Walk),
}

/// What is measured, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// The child's first write, to a page in the middle of the memory.
    FirstWrite,
    /// Its second write, to the page beside.
    NextWrite,
    /// From before the fork until the parent has gone through its part of the memory.
    ForkAndAccess,
    /// Sealing anew before that, which is not part of it.
    Reseal,
}

impl Measure {
    /// The name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FirstWrite => "first_write",
            Self::NextWrite => "next_write",
            Self::ForkAndAccess => "fork_and_access",
            Self::Reseal => "reseal",
        }
    }
}

impl Subject for AccessSubject {
    const NAME: &'static str = "access";
    type Spec = Spec;
    type Ready = Facts;
    type Ask = Ask;
    type Reply = Visit<Measure>;

    fn prepare(spec: Spec) -> Result<(Self, Facts), BenchError> {
        // Before the seal: what comes after it is written once and for all.
        let buffer = vec![1; BLOCK / 8];
        let region = spec.fill()?;
        engine::prepare(spec.method, region.bytes())?;
        let facts = Facts::read(&region)?;
        Ok((Self { method: spec.method, region, buffer, dirty: false }, facts))
    }

    fn answer(&mut self, ask: Ask) -> Result<Self::Reply, BenchError> {
        match ask {
            Ask::Faults { samples } => self.faults(samples),
            Ask::Walk(walk) => self.walk(walk),
        }
    }
}

impl AccessSubject {
    fn faults(&self, samples: usize) -> Result<Visit<Measure>, BenchError> {
        let (mut first, mut next) = (Vec::new(), Vec::new());
        // The first child finds caches full of other workers' data: it is made and checked, but not counted.
        for made in 0..=samples {
            let [a, b] = self.fault()?;
            if made > 0 {
                first.push(a);
                next.push(b);
            }
        }
        Ok(vec![(Measure::FirstWrite, first), (Measure::NextWrite, next)])
    }

    /// One child that writes twice and hands back both times.
    fn fault(&self) -> Result<[f64; 2], BenchError> {
        let failed = |error: std::io::Error| BenchError::system("talk to a child", error);
        let (mut reader, mut writer) = pipe().map_err(failed)?;
        // SAFETY: the child writes to the region and a pipe, and ends in `_exit`.
        match unsafe { engine::fork(self.method) } {
            Ok(Side::Child) => {
                let page = self.region.pages() / 2 * WORDS_PER_PAGE;
                let mut times = [0_u64; 2];
                // The first look at the clock and the first write to the stack fault: before the clock starts.
                std::hint::black_box(&mut times)[0] = Instant::now().elapsed().as_nanos() as u64;
                for (time, index) in times.iter_mut().zip([page, page + WORDS_PER_PAGE]) {
                    let begin = Instant::now();
                    self.region.write(index, !word(index));
                    *time = begin.elapsed().as_nanos() as u64;
                }
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&times[0].to_ne_bytes());
                bytes[8..].copy_from_slice(&times[1].to_ne_bytes());
                let said = writer.write_all(&bytes).is_ok() && self.region.read(page) == !word(page);
                // SAFETY: ends the process without running anything of the parent's.
                unsafe { libc::_exit(if said { 0 } else { WRONG_DATA }) }
            }
            Ok(Side::Parent(pid)) => {
                drop(writer);
                let mut bytes = [0; 16];
                let heard = reader.read_exact(&mut bytes);
                reap(pid)?;
                heard.map_err(failed)?;
                let page = self.region.pages() / 2 * WORDS_PER_PAGE;
                if self.region.read(page) != word(page) {
                    return Err(BenchError::Void("a child's write reached its parent".into()));
                }
                let (first, next) = bytes.split_at(8);
                Ok([first, next].map(|time| time.try_into().map_or(0, u64::from_ne_bytes) as f64 / 1e3))
            }
            Err(error) => Err(BenchError::system("fork", error)),
        }
    }

    fn walk(&mut self, walk: Walk) -> Result<Visit<Measure>, BenchError> {
        let failed = |error: std::io::Error| BenchError::system("talk to a child", error);
        let mut reseal = Vec::new();
        if self.method == Method::Seal && self.dirty {
            let begin = Instant::now();
            engine::seal(engine::Pages::Auto, 0)?;
            reseal.push(begin.elapsed().as_nanos() as f64 / 1e3);
            self.dirty = false;
        }
        let (reader, writer) = pipe().map_err(failed)?;
        let witness = self.region.pages() / 3 * WORDS_PER_PAGE;
        let expected = self.region.read(witness);
        let begin = Instant::now();
        // SAFETY: the child waits, reads the region and ends in `_exit`.
        let pid = match unsafe { engine::fork(self.method) } {
            Ok(Side::Child) => self.wait(reader, writer, witness, expected),
            Ok(Side::Parent(pid)) => pid,
            Err(error) => return Err(BenchError::system("fork", error)),
        };
        let pieces: Vec<Piece> = walk.pieces(self.region.bytes() as usize).collect();
        for piece in pieces {
            self.copy(piece);
            self.dirty |= piece.write;
        }
        let took = begin.elapsed().as_nanos() as f64 / 1e3;
        // The child goes on when all ends it doesn't hold are closed.
        drop((reader, writer));
        reap(pid)?;
        let mut measured = vec![(Measure::ForkAndAccess, vec![took])];
        if !reseal.is_empty() {
            measured.push((Measure::Reseal, reseal));
        }
        Ok(measured)
    }

    /// The child: sleeps until the parent is done, then looks whether its memory still is what it was.
    fn wait(&self, mut reader: PipeReader, writer: PipeWriter, witness: usize, expected: u64) -> ! {
        drop(writer);
        let ended = reader.read(&mut [0]).is_ok();
        let right = ended && self.region.read(witness) == expected;
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(if right { 0 } else { WRONG_DATA }) }
    }

    /// Copies a piece into the buffer, or the buffer into it.
    fn copy(&mut self, piece: Piece) {
        let words = piece.begin / 8..piece.end / 8;
        let length = words.len().min(self.buffer.len());
        if piece.write {
            // Other values each time: what is written must differ from what the child sees.
            self.buffer[..length].iter_mut().step_by(PAGE / 8).for_each(|word| *word = word.wrapping_add(1));
            self.region.copy_in(words.start, &self.buffer[..length]);
        } else {
            self.region.copy_out(words.start, &mut self.buffer[..length]);
            std::hint::black_box(&mut self.buffer);
        }
    }
}

fn reap(pid: Pid) -> Result<(), BenchError> {
    let status = engine::reap(pid)?;
    match status.exit_status() {
        Some(0) => Ok(()),
        Some(WRONG_DATA) => Err(BenchError::Clone {
            what: "looking at its memory".into(),
            status: "it read other bytes than its parent had written".into(),
        }),
        _ => Err(BenchError::Clone { what: "waiting".into(), status: format!("wait status {}", status.as_raw()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> AccessSubject {
        let region = Region::filled(Method::Fork4k, 8 << 20).unwrap();
        AccessSubject { method: Method::Fork4k, region, buffer: vec![1; BLOCK / 8], dirty: false }
    }

    #[test]
    fn faults_are_timed_in_the_child_and_stay_there() {
        let measured = subject().faults(4).unwrap();
        assert_eq!(
            measured.iter().map(|(measure, times)| (*measure, times.len())).collect::<Vec<_>>(),
            [(Measure::FirstWrite, 4), (Measure::NextWrite, 4)]
        );
        assert!(measured.iter().all(|(_, times)| times.iter().all(|&time| time > 0.0)), "{measured:?}");
    }

    #[test]
    fn a_child_keeps_what_its_parent_overwrites() {
        let mut subject = subject();
        for walk in [Walk { share: 100, read: 0 }, Walk { share: 100, read: 50 }, Walk { share: 0, read: 100 }] {
            let measured = subject.walk(walk).unwrap();
            assert_eq!((measured.len(), measured[0].1.len()), (1, 1));
        }
        assert!(subject.dirty && subject.region.verify().is_err(), "the parent has written its memory");
        let mut reader = AccessSubject { buffer: vec![0; BLOCK / 8], ..super::tests::subject() };
        reader.walk(Walk { share: 100, read: 100 }).unwrap();
        reader.region.verify().unwrap();
        assert_eq!(reader.buffer[..3], [word(0), word(1), word(2)]);
    }
}
