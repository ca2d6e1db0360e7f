//! The records of `bench vm-memory`: what tells them apart, and how they are found again.

use super::EXPERIMENT;
use super::code::{Access, FIRST, PAGE};
use crate::prelude::*;
use crate::subjects::vm_host::MemoryPages;

/// One way over all memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::AsRefStr)]
pub enum Pass {
    #[strum(serialize = "booted, first")]
    Unbacked,
    #[strum(serialize = "booted, second")]
    Backed,
    #[strum(serialize = "clone, first")]
    Shared,
    #[strum(serialize = "clone, second")]
    BackedClone,
}

impl Pass {
    pub const ALL: [Self; 4] = [Self::Unbacked, Self::Backed, Self::Shared, Self::BackedClone];
}

/// One kind of guest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// What it does to its memory.
    pub access: Access,
    /// What its memory is made of.
    pub pages: MemoryPages,
}

impl Cell {
    /// One pass, in microseconds a page. `size`: bytes of the guest's memory.
    pub fn row(self, size: u64, huge_fraction: f64, pass: Pass) -> Row {
        let chosen = json!({
            "pass": pass.as_ref(),
            "access": self.access.as_ref(),
            "size": size,
            "pages_touched": touched(size),
        });
        Row::of(self.pages.as_ref(), "us/page", chosen).beside(json!({ "template_huge_fraction": huge_fraction }))
    }

    pub fn find(self, document: &Document, pass: Pass) -> Option<&Record> {
        document.find(EXPERIMENT, self.pages, json!({ "pass": pass.as_ref(), "access": self.access.as_ref() }))
    }

    /// How many times as long one pass took as another.
    pub fn ratio(self, document: &Document, pass: Pass, other: Pass) -> Option<Ratio> {
        ratio_of(self.find(document, pass), self.find(document, other))
    }
}

/// Pages of 4 KB that a pass over a guest of `size` bytes touches.
pub fn touched(size: u64) -> u64 {
    (size - u64::from(FIRST)) / u64::from(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_the_same_guests_are_compared() {
        assert_eq!(touched(4 << 20), 512);
        let cell = Cell { access: Access::Write, pages: MemoryPages::Thp };
        let of = |pass: Pass, figure: f64| {
            let chosen = [("pass", json!(pass.as_ref())), ("access", json!(cell.access.as_ref()))];
            Record::new(EXPERIMENT, cell.pages.as_ref(), chosen, "us/page", vec![figure; 2]).unwrap()
        };
        let records = vec![of(Pass::Shared, 2.0), of(Pass::BackedClone, 1.0)];
        let document = Document::here(records).unwrap();
        assert_eq!(cell.ratio(&document, Pass::Shared, Pass::BackedClone).unwrap().value, 2.0);
        assert!(cell.ratio(&document, Pass::Shared, Pass::Unbacked).is_none());
    }
}
