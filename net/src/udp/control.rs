//! Control messages, which accompany a datagram's bytes.
//!
//! ```text
//! 0      8       12     16
//! | len  | level | type | value ...     the next message begins at a multiple of 8
//! ```
//!
//! Where: below `inbox`, which reads control messages, and `outbox`, which writes them; `in_place`
//! reads control messages that report completed sends.
//! Invariant: no more bytes are read than the kernel has written.
//! Source: cmsg(3); `struct cmsghdr` of a 64-bit Linux.

/// Number of bytes for the control messages of one datagram: `UDP_GRO` or `UDP_SEGMENT` (24 bytes)
/// and `IPV6_PKTINFO` (40 bytes), or `IPV6_RECVERR` (60 bytes).
pub(crate) const CONTROL_BYTES: usize = 64;

const HEAD_BYTES: usize = 16;
const ALIGN_BYTES: usize = 8;

/// The bytes of control messages, aligned for the kernel's `cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control(pub(crate) [u8; CONTROL_BYTES]);

impl Control {
    pub(crate) const EMPTY: Control = Control([0; CONTROL_BYTES]);

    /// Writes a message after the first `bytes` bytes, unless the message does not fit. Returns the
    /// new number of bytes.
    pub(super) fn push(&mut self, bytes: usize, level: i32, kind: i32, value: &[u8]) -> usize {
        let len = HEAD_BYTES + value.len();
        let end = bytes + len.next_multiple_of(ALIGN_BYTES);
        let Some(room) = self.0.get_mut(bytes..end) else { return bytes };
        room[..8].copy_from_slice(&len.to_ne_bytes());
        room[8..12].copy_from_slice(&level.to_ne_bytes());
        room[12..16].copy_from_slice(&kind.to_ne_bytes());
        room[16..len].copy_from_slice(value);
        end
    }

    /// Iterates over the messages in the first `bytes` bytes: their levels, types and values.
    pub(crate) fn read(&self, bytes: usize) -> Messages<'_> {
        Messages(self.0.get(..bytes).unwrap_or(&self.0))
    }
}

pub(crate) struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (len, rest) = self.0.split_first_chunk::<8>()?;
        let (level, rest) = rest.split_first_chunk::<4>()?;
        let (kind, _) = rest.split_first_chunk::<4>()?;
        let len = usize::from_ne_bytes(*len);
        let value = self.0.get(HEAD_BYTES..len)?;
        self.0 = self.0.get(len.next_multiple_of(ALIGN_BYTES)..).unwrap_or(&[]);
        Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_and_lengths_that_lie_end_the_reading() {
        let mut control = Control::EMPTY;
        let first = control.push(0, 17, 104, &[1, 2]);
        let second = control.push(first, 41, 50, &[7; 20]);
        assert_eq!((first, second), (24, 64));
        assert_eq!(control.push(second, 0, 8, &[0; 12]), second);
        let read: Vec<_> = control.read(second).collect();
        assert_eq!(read, [(17, 104, &[1, 2][..]), (41, 50, &[7; 20][..])]);
        assert_eq!(control.read(first).count(), 1);
        for lie in [0, 15, 65, usize::MAX] {
            control.0[..8].copy_from_slice(&usize::to_ne_bytes(lie));
            assert_eq!(control.read(second).count(), 0, "{lie}");
        }
        assert_eq!(control.read(7).count(), 0);
    }
}
