//! System calls with as many arguments as they have.

use crate::sys::{self, Result};
use syscalls::Sysno;

/// A system call as it is.
///
/// # Safety
/// As the call of this number.
pub unsafe fn call<const N: usize>(number: Sysno, arguments: [usize; N]) -> Result<usize> {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    // SAFETY: as the caller says.
    unsafe { sys::call(number, all) }
}

/// Where code begins that is executed with the number of a call in `eax`: behind `mov eax, NUMBER` (5 bytes), by which
/// whoever looks through this code for calls ([`crate::code`], in another copy of the engine) can tell what it does. No
/// instruction has this address, or code would seem to be entered there with any number at all.
pub fn behind_number(code: usize) -> usize {
    code + core::hint::black_box(5)
}

/// Address of a value that the kernel reads or writes.
pub fn at<T>(value: &T) -> usize {
    core::ptr::from_ref(value) as usize
}

/// Address of a value that the kernel writes.
pub fn into<T>(value: &mut T) -> usize {
    core::ptr::from_mut(value) as usize
}
