//! TCP and Unix listeners, which accept connections.
//!
//! Where: the server opens its listeners at start; a column's loop accepts connections.
//! Invariant: an accepted stream is non-blocking; a TCP stream inherits `TCP_NODELAY` and
//! `SO_KEEPALIVE` from its listener, so that accepting costs one system call. Opening fails if
//! another server uses the TCP port, although our own columns share a port. A Unix socket's file is
//! removed only if no server answers on the socket, or by the listener that made the file.
//! Source: memcached `server_socket`, `server_socket_unix`.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

/// Maximum number of attempts to lock a directory. Then the server goes on without the lock.
const LOCK_ATTEMPTS_MAX: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The address that a listener listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Address and port; if port 0 was requested, the port that the system chose.
    Tcp(SocketAddr),
    /// The path of a Unix socket's file.
    Unix(PathBuf),
}

/// The result of an attempt to accept.
#[derive(Debug)]
pub enum Accepted<S = Stream> {
    /// A connection.
    Stream(S),
    /// No connection waits.
    Empty,
    /// No descriptor or memory is left for the connection, which stays queued. Accept it later.
    Exhausted,
    /// A connection broke before it was accepted. Other connections may wait.
    Aborted,
}

/// A listening socket, closed when dropped. A Unix socket's file stays until `remove_file`.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    endpoint: Endpoint,
    /// The file of a Unix socket. While `fd` is open, no other file gets the same inode.
    file: Option<FileId>,
}

/// The identity of a file: another file at the same path has another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Identifies the file at `path`. If `path` is a symbolic link, identifies the link itself.
    fn at(path: &Path) -> io::Result<FileId> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(FileId { device: file.dev(), inode: file.ino() })
    }
}

/// A TCP port that is bound, so that no other server takes it before our listeners are open.
#[derive(Debug)]
pub struct ReservedPort {
    _fd: OwnedFd,
    address: SocketAddr,
}

impl ReservedPort {
    /// Reserves the port of `address`; for port 0 the system chooses a free port. Drop the
    /// reservation when all listeners are open. `SO_REUSEPORT` alone would share the port with
    /// another server of the same user. Fails if another socket listens on the port, permission is
    /// missing, or the machine lacks the address or the IP version.
    pub fn take(address: SocketAddr) -> io::Result<ReservedPort> {
        let fd = tcp_socket(address)?;
        bind(&fd, &address)?;
        let address = local(&fd)?;
        Ok(ReservedPort { _fd: fd, address })
    }

    /// The reserved address and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a listener on the reserved port. The kernel spreads connections over all listeners of
    /// the port. At most `backlog` connections (option `-b`), and at most `net.core.somaxconn`,
    /// wait to be accepted. Fails for the same reasons as `take`.
    pub fn listen(&self, backlog: i32) -> io::Result<Listener> {
        let fd = tcp_socket(self.address)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        sockopt::set_socket_keepalive(&fd, true)?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        bind(&fd, &self.address)?;
        listen(&fd, backlog)?;
        Ok(Listener { fd, endpoint: Endpoint::Tcp(self.address), file: None })
    }
}

fn tcp_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() {
        // Without this option the socket would also take the IPv4 port, which another socket needs.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    sockopt::set_socket_reuseaddr(&fd, true)?;
    Ok(fd)
}

/// Returns the local address of a TCP, UDP or Unix socket; `None` if the socket has no address.
pub fn own_endpoint(socket: impl AsFd) -> Option<Endpoint> {
    let name = getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(name.clone()) {
        return Some(Endpoint::Tcp(address));
    }
    let unix = SocketAddrUnix::try_from(name).ok()?;
    let path = unix.path()?;
    Some(Endpoint::Unix(PathBuf::from(OsStr::from_bytes(path.to_bytes()))))
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
    /// Listens on a Unix socket at `path`, whose file gets the permissions `mode` (option `-a`).
    /// Removes an older socket file at `path` if no server answers on it. Changes the process's
    /// umask during the call, so no other thread may create files meanwhile. Fails if `path` is
    /// longer than 107 bytes, is not writable, or names a file of another kind or a socket on which
    /// a server answers.
    pub fn unix(path: &Path, mode: u32, backlog: i32) -> io::Result<Listener> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new(path)?;
        let endpoint = Endpoint::Unix(path.to_path_buf());
        let _locked = lock_directory(path);
        if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            remove_unanswered(path, &endpoint)?;
        }
        let masked = Mode::from_raw_mode(!mode & 0o777);
        let umask_before = rustix::process::umask(masked);
        let bound = bind(&fd, &address);
        rustix::process::umask(umask_before);
        bound?;
        let file = Some(FileId::at(path)?);
        listen(&fd, backlog)?;
        Ok(Listener { fd, endpoint, file })
    }

    /// The address that this listener listens on.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Accepts a waiting connection.
    #[must_use]
    pub fn accept(&self, calls: &Calls) -> Accepted {
        calls.accepts.add(1);
        match accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(fd) => Accepted::Stream(Stream::from(fd)),
            Err(Errno::AGAIN) => Accepted::Empty,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accepted::Exhausted,
            // A signal, or an error of the new connection itself: see accept(2), "Error handling".
            Err(_) => Accepted::Aborted,
        }
    }

    /// Removes a Unix socket's file if the path still names the file that this listener made.
    pub fn remove_file(&self) {
        if let Endpoint::Unix(path) = &self.endpoint
            && FileId::at(path).ok() == self.file
        {
            // The removal fails if the file no longer exists.
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// Locks the directory of a socket's file until the returned descriptor is dropped. If two servers
/// start with the same path, the lock makes the second server see that the first server listens.
/// Returns `None` if the directory cannot be read or stays locked (some programs lock directories
/// to keep files from being cleaned up).
fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let named = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(named.unwrap_or(Path::new(".")), flags, Mode::empty()).ok()?;
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(fd),
            Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE),
            Err(_) => return None,
        }
    }
    None
}

fn remove_unanswered(path: &Path, endpoint: &Endpoint) -> io::Result<()> {
    let in_use = || io::Error::new(io::ErrorKind::AddrInUse, "another server answers on this path");
    match Stream::connect(endpoint) {
        Ok(_) => Err(in_use()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED) => std::fs::remove_file(path),
            Some(Errno::NOENT) => Ok(()),
            // The backlog is full, or the socket is no stream socket: a server uses the path.
            Some(Errno::AGAIN | Errno::INPROGRESS | Errno::PROTOTYPE) => Err(in_use()),
            // We lack the permission to connect, or this process could not connect. A server may
            // still answer on the path, so the file stays.
            _ => Err(error),
        },
    }
}
