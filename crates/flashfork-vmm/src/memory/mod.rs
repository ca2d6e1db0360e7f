//! Guest RAM: an address range that never moves, over which memory files come and go.

mod copying;
pub mod delta;
mod huge;
mod layered;
mod memfd;
mod pagemap;
mod ram;
mod reservation;
mod undo;
mod watch;

pub use copying::Copying;
pub use huge::collapse;
pub use layered::{LayerError, Layered};
pub use memfd::{MemfdError, check, check_size, create, seal};
pub use ram::{GuestMemory, Ram, RamError};
pub use reservation::Reservation;
pub use undo::Undo;
pub use watch::Watch;

pub(crate) use pagemap::SCAN;
pub(crate) use watch::CALLS as WATCH_CALLS;
