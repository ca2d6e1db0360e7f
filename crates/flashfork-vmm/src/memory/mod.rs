//! Guest RAM: an address range that never moves, over which memory files come and go.

mod huge;
mod memfd;
mod ram;
mod reservation;

pub use huge::collapse;
pub use memfd::{MemfdError, check, check_size, create, seal};
pub use ram::{GuestMemory, Ram, RamError};
pub use reservation::Reservation;
