//! A memory that several sealed memory files make up: a template's, and over it what was written up to each of the live
//! forks between it and a clone.
//!
//! Each file holds its pages at their own offsets. *Extents* say which file a page is taken from, so a clone maps each
//! page once, however deep it lies. A file of which no page shows any more is let go.

use super::{
	delta::{self, read, runs, write},
	memfd::{self, MemfdError, seal},
	pagemap::PAGE,
};
use flashfork_proto::shell::{Extent, MAX_EXTENTS, MAX_LAYERS};
use std::{
	io,
	ops::Range,
	os::fd::{AsFd, BorrowedFd, OwnedFd},
	sync::Arc,
};

/// What is copied at once, in bytes.
const CHUNK: usize = 1 << 20;

/// Pages of 4 KB that are copied rather than be an extent of their own beside what a fork has copied: that is done once
/// for all clones, while an extent is a mapping, and some microseconds, for each of them.
const GAP: u64 = 8;

/// Why files make up no memory.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
	/// One of them.
	#[error(transparent)]
	File(#[from] MemfdError),
	/// Extents that aren't one behind the other to the memory's end, or of files that aren't there.
	#[error("the extents of a memory don't fit its files")]
	Extents,
	/// A shell says of more pages that it has copied them than its guest may have written, or copies more.
	#[error("it has copied more than its guest may write")]
	Copied,
	/// What a fork has copied can't be put over what was there.
	#[error("cannot write a layer of memory: {0}")]
	Write(#[from] io::Error),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Layered {
	files: Vec<Arc<OwnedFd>>,
	extents: Vec<Extent>,
}

impl Layered {
	/// One file of `bytes` alone.
	#[must_use]
	pub fn single(file: OwnedFd, bytes: u64) -> Self {
		let mut extents = Extents::default();
		extents.push(0..pages(bytes), 0);
		Self { files: vec![Arc::new(file)], extents: extents.0 }
	}

	/// Of files and extents that came from elsewhere; to be [checked](Self::check) before anything else.
	#[must_use]
	pub fn of(files: Vec<OwnedFd>, extents: Vec<Extent>) -> Self {
		Self { files: files.into_iter().map(Arc::new).collect(), extents }
	}

	/// The same, of files that others have, too.
	#[must_use]
	pub fn shared(files: Vec<Arc<OwnedFd>>, extents: Vec<Extent>) -> Self {
		Self { files, extents }
	}

	/// Whether they make up a memory of `bytes`: the first file is as long, the others are [deltas](delta), and nobody
	/// can change any of them.
	pub fn check(&self, bytes: u64) -> Result<(), LayerError> {
		for (index, file) in self.files.iter().enumerate() {
			memfd::check(file, if index == 0 { bytes } else { delta::length(bytes) })?;
		}
		let fits = |extent: &Extent| extent.pages > 0 && usize::from(extent.file) < self.files.len();
		if self.extents.iter().all(fits) && self.length() == bytes { Ok(()) } else { Err(LayerError::Extents) }
	}

	/// Its files, the first as long as the memory.
	#[must_use]
	pub fn files(&self) -> &[Arc<OwnedFd>] {
		&self.files
	}

	/// Where its pages are.
	#[must_use]
	pub fn extents(&self) -> &[Extent] {
		&self.extents
	}

	/// Its bytes, by file: where they are in that and in the memory.
	pub(crate) fn ranges(&self) -> impl Iterator<Item = (Range<u64>, BorrowedFd<'_>)> {
		self.runs().map(|(run, file)| (bytes(&run), self.files[usize::from(file)].as_fd()))
	}

	/// Its pages, by file.
	fn runs(&self) -> impl Iterator<Item = (Range<u64>, u8)> {
		let mut at = 0;
		self.extents.iter().map(move |extent| {
			let start = at;
			at += u64::from(extent.pages);
			(start..at, extent.file)
		})
	}

	/// The memory with what is in `delta` over it, which is sealed by this.
	///
	/// What lies below in its own file is copied into it where that shows no more than `delta` has, where it is a
	/// narrow gap, or where there would be too many files or extents, the smallest first: so a clone of a clone of a
	/// clone maps no more than it must. Whoever may still write to `delta` can do so until it is sealed, and then the
	/// seal fails, or there is more in it than `most` pages: its bits are read once, and no more are believed.
	///
	/// # Errors
	/// [`LayerError`]; then `delta` is of no use.
	pub fn with(&self, delta: impl Into<Arc<OwnedFd>>, most: u64) -> Result<Self, LayerError> {
		let (delta, length) = (delta.into(), self.length());
		memfd::check_size(&delta, delta::length(length))?;
		let new = u8::try_from(self.files.len()).map_err(|_| LayerError::Extents)?;
		let mut there = runs(&delta, length, most)?;
		if there.iter().map(|run| run.end - run.start).sum::<u64>() > most {
			return Err(LayerError::Copied);
		}
		let mut most = most;
		let mut over = Self { files: self.files.clone(), extents: self.extents_with(&there, new) };
		loop {
			let folded = over.to_fold(new);
			if folded.is_empty() {
				break;
			}
			for (run, file) in folded {
				copy(&self.files[usize::from(file)], &delta, &bytes(&run))?;
				most = most.saturating_add(run.end - run.start);
				there.push(run);
			}
			there.sort_by_key(|run| run.start);
			over.extents = self.extents_with(&there, new);
		}
		seal(&delta)?;
		if !delta::fits(&delta, most.saturating_mul(PAGE as u64)) {
			return Err(LayerError::Copied);
		}
		over.files.push(delta);
		over.let_go();
		Ok(over)
	}

	/// The extents if `runs` are taken from file `new`.
	fn extents_with(&self, runs: &[Range<u64>], new: u8) -> Vec<Extent> {
		let (mut extents, mut over) = (Extents::default(), runs.iter().peekable());
		for (run, file) in self.runs() {
			let mut at = run.start;
			while at < run.end {
				// Of the next that isn't behind us.
				while over.next_if(|next| next.end <= at).is_some() {}
				let (start, end) = over.peek().map_or((run.end, run.end), |next| (next.start, next.end));
				let until = if at < start { start.min(run.end) } else { end.min(run.end) };
				extents.push(at..until, if at < start { file } else { new });
				at = until;
			}
		}
		extents.0
	}

	/// Which pages had better be in file `new`, too, and where they are: all of a file or some; none if all is well.
	fn to_fold(&self, new: u8) -> Vec<(Range<u64>, u8)> {
		let mut shown = vec![0; usize::from(new) + 1];
		self.runs().for_each(|(run, file)| shown[usize::from(file)] += run.end - run.start);
		let lower = (1..usize::from(new)).filter(|file| shown[*file] > 0);
		if let Some(least) = lower.clone().min_by_key(|file| shown[*file])
			&& (shown[least] <= shown[usize::from(new)] || lower.count() + 2 > MAX_LAYERS)
		{
			return self.runs().filter(|(_, file)| usize::from(*file) == least).collect();
		}
		let extents: Vec<_> = self.runs().collect();
		let is_new = |index: usize| extents.get(index).is_some_and(|(_, file)| *file == new);
		let beside = |index: usize| is_new(index + 1) || index > 0 && is_new(index - 1);
		let is_gap = |(index, (run, file)): &(usize, &(Range<u64>, u8))| {
			*file != new && run.end - run.start <= GAP && beside(*index)
		};
		let gaps: Vec<_> = extents.iter().enumerate().filter(is_gap).map(|(_, extent)| extent.clone()).collect();
		if !gaps.is_empty() {
			return gaps;
		}
		let excess = self.extents.len().saturating_sub(MAX_EXTENTS);
		let mut others: Vec<_> = self.runs().filter(|(_, file)| *file != new).collect();
		others.sort_by_key(|(run, _)| run.end - run.start);
		// One between two runs of the new file makes one extent of three.
		others.truncate(excess.div_ceil(2));
		others
	}

	/// Drops files of which nothing shows, except the first, by which the memory is told.
	fn let_go(&mut self) {
		let mut numbers = vec![0];
		for file in 1..self.files.len() {
			if self.extents.iter().any(|extent| usize::from(extent.file) == file) {
				numbers.push(file);
			}
		}
		for extent in &mut self.extents {
			let place = numbers.iter().position(|number| *number == usize::from(extent.file));
			extent.file = place.map_or(0, |place| place as u8);
		}
		self.files = numbers.into_iter().map(|number| self.files[number].clone()).collect();
	}

	/// Its length in bytes.
	#[must_use]
	pub fn length(&self) -> u64 {
		self.extents.iter().map(|extent| u64::from(extent.pages)).sum::<u64>() * PAGE as u64
	}
}

/// Extents that are made one behind the other.
#[derive(Default)]
struct Extents(Vec<Extent>);

impl Extents {
	/// Of the largest disks a run may be several.
	fn push(&mut self, run: Range<u64>, file: u8) {
		let mut left = run.end - run.start;
		while left > 0 {
			let room = self.0.last_mut().filter(|last| last.file == file && last.pages < u32::MAX);
			let extent = match room {
				Some(last) => last,
				None => {
					self.0.push(Extent { pages: 0, file });
					continue;
				}
			};
			let more = left.min(u64::from(u32::MAX - extent.pages)) as u32;
			extent.pages += more;
			left -= u64::from(more);
		}
	}
}

fn pages(bytes: u64) -> u64 {
	bytes / PAGE as u64
}

fn bytes(pages: &Range<u64>) -> Range<u64> {
	pages.start * PAGE as u64..pages.end * PAGE as u64
}

/// Copies a range of one file to the same place of another. Zeros are left out where that has none but zeros.
fn copy(from: impl AsFd, to: impl AsFd, range: &Range<u64>) -> io::Result<()> {
	let mut chunk = vec![0; CHUNK.min((range.end - range.start) as usize)];
	for at in range.clone().step_by(CHUNK) {
		let chunk = &mut chunk[..CHUNK.min((range.end - at) as usize)];
		read(&from, chunk, at)?;
		for (index, page) in chunk.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
			write(&to, page, at + (index * PAGE) as u64)?;
		}
	}
	Ok(())
}

#[cfg(test)]
mod tests;
