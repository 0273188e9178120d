//! Sets socket options that rustix does not support.
//!
//! Where: called for a new socket, before the socket sends or receives.
//! Invariant: the kernel reads only the value, and the memory to which pointers in the value point.
//! Source: setsockopt(2).
#![allow(unsafe_code, reason = "setsockopt, which takes any option's value")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

pub(crate) fn switch_on(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<()> {
    set_option(socket, level, option, &1_i32)
}

/// Sets an option. A `T` must have the memory layout that the kernel expects of the option's value.
pub(crate) fn set_option<T>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let bytes = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `bytes` bytes, the size of `value`, and `value` outlives the call.
    // If a `T` has pointers, the caller guarantees that their targets outlive the call too.
    let failed = unsafe { libc::setsockopt(fd, level, option, (&raw const *value).cast(), bytes) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
