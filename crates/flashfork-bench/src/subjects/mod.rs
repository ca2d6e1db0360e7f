//! What is measured: processes that hold memory in one way or another, the engines that clone them, and what they are
//! made of. Experiments share these; none of them knows an experiment.

pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod cpu;
pub mod database;
pub mod engine;
mod facts;
pub(crate) mod guard;
pub mod heap;
pub(crate) mod held;
pub(crate) mod hugetlb;
pub mod memory;
mod method;
pub(crate) mod parent;
mod region;
pub(crate) mod shim;
pub(crate) mod template;
pub(crate) mod vm_host;

pub(crate) use facts::Facts;
pub use method::Method;
pub(crate) use region::{PAGE, Region, WORDS_PER_PAGE, mix, word};
