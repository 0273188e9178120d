//! Where connections come in: TCP and Unix listeners.
//!
//! Where: before a column's loop, and in it when a connection waits.
//! Invariant: what is accepted is non-blocking and, on TCP, has no delay and keep-alive set
//! (inherited from the listener, so that accepting costs one system call). A TCP port that another
//! server listens on is refused although our own columns share it. A Unix socket's file is removed
//! only where nobody answers on it, or by the listener that made it.
//! Source: memcached `server_socket`, `server_socket_unix`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getsockname, listen,
    socket_with, sockopt,
};

use crate::calls::Calls;
use crate::stream::Stream;

/// How often, and after how long, a directory is asked for that somebody else has locked.
const LOCK_ATTEMPTS_MAX: usize = 100;
const LOCK_REST: Duration = Duration::from_millis(10);

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Address and port, the real one where 0 was asked for.
    Tcp(SocketAddr),
    /// The socket's file.
    Unix(PathBuf),
}

/// What an attempt to accept came to.
#[derive(Debug)]
pub enum Accepted {
    /// A connection.
    Stream(Stream),
    /// None waits.
    Empty,
    /// The system has no descriptor or memory for it: it goes on waiting, so stop asking for a
    /// while.
    Exhausted,
    /// One came and went; others may wait.
    Aborted,
}

/// A listening socket. Closed when dropped; a Unix socket's file stays until `remove_file`.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    place: Place,
    /// A Unix socket's file. Its inode is nobody else's for as long as `fd` is open.
    file: Option<FileId>,
}

/// Which file it is, whatever its path names by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at `path`, not what it links to.
    fn at(path: &Path) -> io::Result<FileId> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(FileId { device: file.dev(), inode: file.ino() })
    }
}

/// A TCP port held for this process while its listeners are made.
#[derive(Debug)]
pub struct PortHold {
    _fd: OwnedFd,
    address: SocketAddr,
}

impl PortHold {
    /// Takes `address`; port 0 takes a free one. Drop it when the listeners stand.
    ///
    /// It shares the port with nobody who listens already, as `SO_REUSEPORT` alone would do with
    /// another server of the same user.
    ///
    /// # Errors
    /// Somebody listens there; the address is not ours; no permission; no such protocol.
    pub fn take(address: SocketAddr) -> io::Result<PortHold> {
        let fd = tcp_socket(address)?;
        bind(&fd, &address)?;
        let address = local(&fd)?;
        Ok(PortHold { _fd: fd, address })
    }

    /// The address, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One of several listeners on the held address; the kernel spreads connections over them.
    /// `backlog` connections may wait (`-b`); the kernel cuts it to `net.core.somaxconn`.
    ///
    /// # Errors
    /// As `take`.
    pub fn listen(&self, backlog: i32) -> io::Result<Listener> {
        let fd = tcp_socket(self.address)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        sockopt::set_socket_keepalive(&fd, true)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        bind(&fd, &self.address)?;
        listen(&fd, backlog)?;
        Ok(Listener { fd, place: Place::Tcp(self.address), file: None })
    }
}

fn tcp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() {
        // Or it would take the IPv4 port too, which has its own listener.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    sockopt::set_socket_reuseaddr(&fd, true)?;
    Ok(fd)
}

fn local(fd: &OwnedFd) -> io::Result<SocketAddr> {
    SocketAddr::try_from(getsockname(fd)?).map_err(io::Error::from)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Listens on a Unix socket at `path`, whose file gets the permissions `mode` (`-a`). A socket
    /// file on which nobody answers is removed first, anything else stays and fails the bind. Sets
    /// the process's umask for a moment: call it before there are threads that make files.
    ///
    /// # Errors
    /// The path is too long (107 bytes), in use by a server or by another kind of file, or not
    /// writable.
    pub fn unix(path: &Path, mode: u32, backlog: i32) -> io::Result<Listener> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new(path)?;
        let place = Place::Unix(path.to_path_buf());
        let _locked = lock_directory(path);
        if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            remove_unanswered(path, &place)?;
        }
        let masked = Mode::from_raw_mode(!mode & 0o777);
        let umask_before = rustix::process::umask(masked);
        let bound = bind(&fd, &address);
        rustix::process::umask(umask_before);
        bound?;
        let file = Some(FileId::at(path)?);
        listen(&fd, backlog)?;
        Ok(Listener { fd, place, file })
    }

    /// Where it listens.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Takes a waiting connection.
    #[must_use]
    pub fn accept(&self, calls: &Calls) -> Accepted {
        calls.accepts.add(1);
        match accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(fd) => Accepted::Stream(Stream::from(fd)),
            Err(Errno::AGAIN) => Accepted::Empty,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accepted::Exhausted,
            // A signal, or an error of the new connection itself (accept(2), "Error handling").
            Err(_) => Accepted::Aborted,
        }
    }

    /// Removes a Unix socket's file, if it is still this listener's; nothing for TCP.
    pub fn remove_file(&self) {
        if let Place::Unix(path) = &self.place
            && FileId::at(path).ok() == self.file
        {
            // Gone already: what we wanted.
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// Locks the directory of a socket's file until what is returned is dropped: of two servers that
/// start at once on one path, the second finds the first one listening. `None`: the directory
/// cannot be read, or somebody holds its lock for longer than this takes (they are also used to
/// keep files from being cleaned up).
fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let named = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(named.unwrap_or(Path::new(".")), flags, Mode::empty()).ok()?;
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(fd),
            Err(Errno::WOULDBLOCK) => sleep(LOCK_REST),
            Err(_) => return None,
        }
    }
    None
}

/// Removes the file of a Unix socket that a server left behind.
fn remove_unanswered(path: &Path, place: &Place) -> io::Result<()> {
    let taken = || io::Error::new(io::ErrorKind::AddrInUse, "another server answers there");
    match Stream::connect(place) {
        Ok(_) => Err(taken()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => std::fs::remove_file(path),
            Some(Errno::NOENT) => Ok(()),
            // Its backlog is full, or it is no stream.
            Some(Errno::AGAIN | Errno::INPROGRESS | Errno::PROTOTYPE) => Err(taken()),
            // Not ours to ask, so not ours to take; or we could not ask.
            _ => Err(error),
        },
    }
}
