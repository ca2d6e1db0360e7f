//! What the kernel says about a process, read from `/proc` without allocating. Nothing here changes
//! memory; one setting is written, in [`dump`].

pub(crate) mod directory;
pub mod dump;
pub mod headroom;
pub(crate) mod lookup;
pub(crate) mod pagemap;
pub(crate) mod scan;
pub(crate) mod text;
pub(crate) mod vma;
