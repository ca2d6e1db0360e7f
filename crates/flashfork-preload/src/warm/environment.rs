//! What `flashfork warm` tells the shim, in the variable [`flashfork_warm::VARIABLE`].

use super::ORDER;
use core::ffi::{CStr, c_int};
use flashfork_warm::{LONGEST_NAME, ReadyAt, VARIABLE};

/// To become a template.
pub struct Order {
    /// The socket to the command, until the template is ready.
    pub control: c_int,
    /// Where callers come.
    pub listener: c_int,
    /// The directory of the names.
    pub directory: c_int,
    /// Where the program is ready, if that was said.
    pub at: Option<ReadyAt>,
    /// Most clones to make; 0 for any number.
    pub max: u64,
    /// The template's name, with its NUL.
    pub name: [u8; LONGEST_NAME + 1],
}

/// Run by the loader before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

extern "C" fn init() {
    // SAFETY: nothing else runs yet; the value is copied before it is unset.
    unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        if value.is_null() {
            return;
        }
        let order = parse(CStr::from_ptr(value));
        // Programs that this one starts are its own affair.
        libc::unsetenv(VARIABLE.as_ptr());
        let Some(order) = order else { return };
        for fd in [order.control, order.listener, order.directory] {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        *ORDER.get() = Some(order);
    }
}

/// `None` for what `flashfork warm` would not write.
fn parse(value: &CStr) -> Option<Order> {
    let mut fields = value.to_bytes().splitn(6, |b| *b == b',');
    let mut number = || -> Option<u64> {
        let digits = fields.next()?;
        digits.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b.checked_sub(b'0')?)))
    };
    let (control, listener, directory) = (number()?, number()?, number()?);
    let (at, max) = (number()?, number()?);
    let text = fields.next()?;
    let mut name = [0; LONGEST_NAME + 1];
    name.get_mut(..text.len().min(LONGEST_NAME))?.copy_from_slice(text.get(..text.len().min(LONGEST_NAME))?);
    Some(Order {
        control: c_int::try_from(control).ok()?,
        listener: c_int::try_from(listener).ok()?,
        directory: c_int::try_from(directory).ok()?,
        at: ReadyAt::new(at),
        max,
        name,
    })
}
