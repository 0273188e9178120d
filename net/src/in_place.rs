//! Sends bytes on a stream without copying them, through a pipe or by reference (`MSG_ZEROCOPY`).
//!
//! Where: only in the load generator's test server, which compares a pipe with sends by reference.
//! The cache itself sends with `sendmsg`, which makes the kernel copy the bytes once.
//! Invariant: only bytes that are never written and never freed are sent, because no event reports
//! when the kernel has read the last bytes that a pipe gave to a socket. No call blocks.
//! Source: vmsplice(2), splice(2); `Documentation/networking/msg_zerocopy.rst` of Linux;
//! `struct sock_extended_err` of `linux/errqueue.h`.
#![allow(unsafe_code, reason = "vmsplice; a socket's option and errors that rustix does not know")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use memory::plant::{Fault, is};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice,
};

use crate::calls::Calls;
use crate::option::switch_on;
use crate::stream::{Stream, WriteResult, sent};
use crate::udp::control::{CONTROL_BYTES, Control};

const PIPE_BYTES: usize = 256 << 10;
const COMPLETIONS_MAX: usize = 64;

/// A pipe through which bytes go to a socket without a copy.
#[derive(Debug)]
pub struct Pipe {
    reads: OwnedFd,
    writes: OwnedFd,
    bytes: usize,
}

impl Pipe {
    /// Makes an empty pipe. Fails if no descriptor is left, or if the user's pipes have reached
    /// their memory limit.
    pub fn new() -> io::Result<Pipe> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&writes, PIPE_BYTES)?;
        Ok(Pipe { reads, writes, bytes: 0 })
    }

    /// Number of bytes in the pipe.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills the pipe from the start of `from`. Returns the number of bytes; 0 if the pipe is full.
    pub fn fill(&mut self, from: &'static [u8], calls: &Calls) -> io::Result<usize> {
        calls.writes.add(1);
        let pieces = [IoSliceRaw::from_slice(from)];
        // SAFETY: the pipe keeps references to the pages of `from`. These pages live as long as the
        // process and are never written to, because `from` is borrowed for the static lifetime.
        let filled = unsafe { vmsplice(&self.writes, &pieces, SpliceFlags::NONBLOCK) };
        match filled {
            Ok(bytes) => {
                self.bytes += bytes;
                Ok(bytes)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves bytes from the pipe to the socket. The caller must send more bytes afterwards, because
    /// the kernel may hold back bytes that do not fill a packet until more bytes follow.
    #[must_use]
    pub fn drain(&mut self, to: &Stream, calls: &Calls) -> WriteResult {
        calls.writes.add(1);
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MORE;
        match sent(splice(&self.reads, None, to, None, self.bytes, flags)) {
            WriteResult::Bytes(bytes) => {
                self.bytes -= bytes;
                WriteResult::Bytes(bytes)
            }
            broken => broken,
        }
    }
}

/// Numbers of completed sends by reference, as the kernel has reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Number of completed sends.
    pub sends: u64,
    /// Number of completed sends whose bytes the kernel has copied.
    pub copied: u64,
}

impl Stream {
    /// Like `write`, but tells the kernel that more bytes follow at once.
    #[must_use]
    pub fn write_with_more(&self, bytes: &[u8], calls: &Calls) -> WriteResult {
        calls.writes.add(1);
        sent(rustix::net::send(self, bytes, SendFlags::NOSIGNAL | SendFlags::MORE))
    }

    /// Allows `refer` on this stream. Fails if the stream is not TCP, or Linux is older than 4.14.
    pub fn allow_references(&self) -> io::Result<()> {
        switch_on(self, libc::SOL_SOCKET, libc::SO_ZEROCOPY)
    }

    /// Sends bytes from the start of `bytes` by reference. The caller must send more bytes
    /// afterwards, because the kernel may hold back bytes that do not fill a packet. Copies the
    /// bytes if the kernel has no memory for one more completion report.
    #[must_use]
    pub fn refer(&self, bytes: &'static [u8], calls: &Calls) -> WriteResult {
        calls.writes.add(1);
        let by_reference = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY.cast_unsigned());
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE | by_reference;
        match rustix::net::send(self, bytes, flags) {
            Err(Errno::NOBUFS) => self.write_with_more(bytes, calls),
            result => sent(result),
        }
    }

    /// Reads at most `COMPLETIONS_MAX` reports of completions that came since the last call.
    #[must_use]
    pub fn completions(&self, calls: &Calls) -> Completions {
        let mut completions = Completions::default();
        for _ in 0..COMPLETIONS_MAX {
            calls.reads.add(1);
            let Some(more) = self.receive_completion() else { break };
            completions.sends += more.sends;
            completions.copied += more.copied;
        }
        completions
    }

    fn receive_completion(&self) -> Option<Completions> {
        let mut control = Control::EMPTY;
        let mut message = libc::msghdr {
            msg_name: std::ptr::null_mut(),
            msg_namelen: 0,
            msg_iov: std::ptr::null_mut(),
            msg_iovlen: 0,
            msg_control: control.0.as_mut_ptr().cast(),
            msg_controllen: CONTROL_BYTES,
            msg_flags: 0,
        };
        let fd = self.as_fd().as_raw_fd();
        let flags = (RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT).bits().cast_signed();
        // SAFETY: `message` points only to the `CONTROL_BYTES` bytes of `control`, which outlives
        // the call. `message` has no pointer to an address or to data.
        if unsafe { libc::recvmsg(fd, &raw mut message, flags) } < 0 {
            return None;
        }
        control.read(message.msg_controllen).find_map(|(_, _, value)| read_completion(value))
    }
}

/// Reads a `sock_extended_err`, which has the numbers of the first and the last completed send.
///
/// ```text
/// 0       4        5      6      7     8       12
/// | errno | origin | type | code | pad | first | last | an address ...
/// ```
fn read_completion(error: &[u8]) -> Option<Completions> {
    const BY_REFERENCE: u8 = 5; // SO_EE_ORIGIN_ZEROCOPY
    const COPIED: u8 = 1; // SO_EE_CODE_ZEROCOPY_COPIED
    let number = |at: usize| Some(u32::from_ne_bytes(error.get(at..at + 4)?.try_into().ok()?));
    if *error.get(4)? != BY_REFERENCE {
        return None;
    }
    let (first, last) = (number(8)?, number(12)?);
    // The kernel numbers the sends with a 32-bit counter, which wraps around.
    let referred = u64::from(last.wrapping_sub(first)) + 1;
    Some(Completions {
        sends: referred,
        copied: if *error.get(6)? == COPIED && !is(Fault::CopyReportIgnored) {
            referred
        } else {
            0
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        own.set_nonblocking(true).unwrap();
        (Stream::from(OwnedFd::from(own)), listener.accept().unwrap().0)
    }

    fn value(bytes: usize) -> &'static [u8] {
        let pattern = (0..bytes).map(|at| u8::try_from(at % 251).unwrap());
        Box::leak(pattern.collect::<Vec<u8>>().into_boxed_slice())
    }

    #[test]
    fn what_goes_by_a_pipe_arrives_whole_whatever_the_socket_takes_at_once() {
        let ((stream, mut peer), calls) = (pair(), Calls::default());
        let value = value(3 << 20);
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).unwrap();
            read
        });
        let (mut pipe, mut at) = (Pipe::new().unwrap(), 0);
        while at < value.len() || pipe.bytes() > 0 {
            at += pipe.fill(&value[at..], &calls).unwrap();
            assert!(pipe.bytes() <= PIPE_BYTES);
            match pipe.drain(&stream, &calls) {
                WriteResult::Bytes(0) => std::thread::yield_now(),
                WriteResult::Bytes(_) => {}
                WriteResult::Broken => panic!("the connection is broken"),
            }
        }
        stream.finish();
        assert!(reader.join().unwrap() == value);
    }

    #[test]
    fn a_pipe_tells_what_it_holds_and_a_full_one_takes_nothing() {
        let ((stream, mut peer), calls) = (pair(), Calls::default());
        let (mut pipe, value) = (Pipe::new().unwrap(), value(2 * PIPE_BYTES));
        assert_eq!((pipe.fill(&value[..1000], &calls).unwrap(), pipe.bytes()), (1000, 1000));
        assert_eq!((pipe.drain(&stream, &calls), pipe.bytes()), (WriteResult::Bytes(1000), 0));
        let mut read = [0; 1000];
        peer.read_exact(&mut read).unwrap();
        assert!(read == value[..1000]);
        let filled = pipe.fill(value, &calls).unwrap();
        assert!(filled > 0 && filled <= PIPE_BYTES && pipe.bytes() == filled);
        assert_eq!((pipe.fill(&value[filled..], &calls).unwrap(), pipe.bytes()), (0, filled));
    }

    #[test]
    fn what_is_referred_to_arrives_whole_and_the_kernel_tells_that_loopback_copies_it() {
        let ((stream, mut peer), calls) = (pair(), Calls::default());
        let value = value(3 << 20);
        stream.allow_references().unwrap();
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).unwrap();
            read
        });
        let (mut at, mut completions) = (0, Completions::default());
        while at < value.len() {
            match stream.refer(&value[at..], &calls) {
                WriteResult::Bytes(0) => std::thread::yield_now(),
                WriteResult::Bytes(bytes) => at += bytes,
                WriteResult::Broken => panic!("the connection is broken"),
            }
        }
        stream.finish();
        assert!(reader.join().unwrap() == value);
        while completions.sends == 0 {
            completions = stream.completions(&calls);
            std::thread::yield_now();
        }
        assert_eq!(completions.copied, completions.sends);
    }

    #[test]
    fn what_the_kernel_tells_is_read_to_the_last_number_and_nothing_else_is_taken_for_it() {
        let mut error = [0_u8; 32];
        error[4..7].copy_from_slice(&[5, 0, 1]);
        error[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        error[12..16].copy_from_slice(&2_u32.to_ne_bytes());
        assert_eq!(read_completion(&error), Some(Completions { sends: 4, copied: 4 }));
        error[6] = 0;
        assert_eq!(read_completion(&error), Some(Completions { sends: 4, copied: 0 }));
        error[4] = 2;
        assert_eq!(read_completion(&error), None);
        for bytes in 0..16 {
            assert_eq!(read_completion(&[5; 32][..bytes]), None);
        }
    }
}
