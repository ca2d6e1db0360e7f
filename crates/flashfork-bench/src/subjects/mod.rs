//! What is measured: processes that hold memory in one way or another, the engines that clone them, and what they are
//! made of. Experiments share these; none of them knows an experiment.

pub mod clients;
pub mod clock;
pub mod command;
pub mod cpu;
pub mod database;
pub mod engine;
mod facts;
pub mod guard;
pub mod heap;
pub mod held;
pub mod hugetlb;
pub mod memory;
mod method;
pub mod parent;
mod region;
pub mod shim;
pub mod template;
pub mod vm_host;

pub use facts::Facts;
pub use method::Method;
pub use region::{PAGE, Region, WORDS_PER_PAGE, mix, word};
