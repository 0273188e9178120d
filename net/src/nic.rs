//! A network interface's settings, as `ethtool` shows them: offloads, coalescing, rings, queues.
//!
//! Where: `xdp` reads settings at start; a load generator records them with its measurements.
//! Invariant: settings are only read (except in a test), with commands that need no privilege.
//! Settings that the driver does not know are left out. The code is unsafe because the kernel fills
//! a buffer to which a structure points.
//! Source: `linux/ethtool.h`, SIOCETHTOOL; Linux's `dev_ethtool` lists the unprivileged commands.

#![allow(unsafe_code, reason = "rustix has no safe SIOCETHTOOL")]

use std::ffi::c_char;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Number of 32-bit words in the buffer for an answer. The longest answer has 23 words.
const WORDS: usize = 32;
const GET_COALESCE: u32 = 0x0e;
const GET_RINGS: u32 = 0x10;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;

/// Commands that the kernel answers with one number, and the names of the settings.
const FIGURES: [(u32, &str); 6] = [
    (0x14, "rx-checksum"),
    (0x16, "tx-checksum"),
    (0x18, "scatter-gather"),
    (0x1e, "tso"),
    (0x23, "gso"),
    (0x2b, "gro"),
];
/// Bits of the answer to `GET_FLAGS`, and the names of the settings.
const FLAGS: [(u32, &str); 4] =
    [(1 << 8, "rx-vlan"), (1 << 15, "lro"), (1 << 27, "ntuple"), (1 << 28, "rx-hash")];
/// For each setting in a longer answer: the command, the index of the word, and the setting's name.
const WORDS_OF: [(u32, usize, &str); 11] = [
    (GET_COALESCE, 1, "rx-usecs"),
    (GET_COALESCE, 2, "rx-frames"),
    (GET_COALESCE, 5, "tx-usecs"),
    (GET_COALESCE, 6, "tx-frames"),
    (GET_COALESCE, 10, "adaptive-rx"),
    (GET_COALESCE, 11, "adaptive-tx"),
    (GET_RINGS, 5, "rx-ring"),
    (GET_RINGS, 8, "tx-ring"),
    (GET_CHANNELS, 5, "rx-channels"),
    (GET_CHANNELS, 6, "tx-channels"),
    (GET_CHANNELS, 8, "combined-channels"),
];

/// Returns the settings of the interface `name`, under the names that `ethtool` uses.
#[must_use]
pub fn nic_settings(name: &str) -> Vec<(&'static str, u32)> {
    let opened =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok();
    let Some(socket) = opened else { return Vec::new() };
    let mut settings = Vec::new();
    for (command, setting) in FIGURES {
        settings.extend(ask(&socket, name, command).map(|words| (setting, words[1])));
    }
    if let Some(words) = ask(&socket, name, GET_FLAGS) {
        settings.extend(FLAGS.map(|(bit, setting)| (setting, u32::from(words[1] & bit != 0))));
    }
    for command in [GET_COALESCE, GET_RINGS, GET_CHANNELS] {
        let Some(words) = ask(&socket, name, command) else { continue };
        let of = WORDS_OF.iter().filter(|(of, ..)| *of == command);
        settings.extend(of.map(|(_, at, setting)| (*setting, words[*at])));
    }
    settings
}

/// Returns the answer to `command`; `None` if the driver or the kernel does not know the command.
fn ask(socket: &OwnedFd, name: &str, command: u32) -> Option<[u32; WORDS]> {
    order(socket, name, [command, 0])
}

fn order(socket: &OwnedFd, name: &str, command: [u32; 2]) -> Option<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[..2].copy_from_slice(&command);
    // SAFETY: `ifreq` is an array of characters and a union of integers and pointers. All zeros are
    // a valid value for each of them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last character of `ifr_name` stays 0, because a 0 ends the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: `socket` is borrowed, so its descriptor is open. The kernel reads and writes
    // `request` and `words`, to which `ifru_data` points. Both are local variables, and nothing
    // else refers to them until the call has returned. The kernel uses 8, 36 or 92 of the 128 bytes
    // of `words`: the size of the command's structure. `words` is aligned for the structure's u32
    // fields.
    let outcome = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, std::ptr::from_mut(&mut request))
    };
    (outcome == 0).then_some(words)
}

/// Makes the driver compute the checksums of sent packets if `is_on`, and the kernel otherwise.
#[cfg(test)]
pub(crate) fn set_transmit_checksums(name: &str, is_on: bool) {
    const SET_TRANSMIT_CHECKSUMS: u32 = 0x17;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let done = order(&socket.unwrap(), name, [SET_TRANSMIT_CHECKSUMS, u32::from(is_on)]);
    assert!(done.is_some(), "{name}: {}", std::io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_reports_its_offloads_and_an_unknown_interface_nothing() {
        let settings = nic_settings("lo");
        let value = |name| settings.iter().find(|(one, _)| *one == name).map(|(_, value)| *value);
        assert!(matches!(value("gso"), Some(0 | 1)), "{settings:?}");
        assert!(matches!(value("lro"), Some(0 | 1)), "{settings:?}");
        for name in ["", "nosuchnic", "a name that is longer than an interface's"] {
            assert_eq!(nic_settings(name), [], "{name}");
        }
    }
}
