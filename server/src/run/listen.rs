//! Opens the listeners that the settings request.
//!
//! Where: `run` calls `open` once, before it starts columns.
//! Invariant: every column has its own listener for every TCP address, so that the kernel
//! distributes connections among columns. All columns share the one listener of a Unix socket. An
//! address in use is skipped if another address of the same `-l` entry can be opened.
//! Source: memcached 1.6.45 `server_sockets`, `server_socket`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use columns::ColumnListener;
use columns::datapath::datagram_bytes_for;
use columns::datapath::udp::ColumnSocket;
use net::{Endpoint, Listener, ReservedPort, Sizes};
use protocol::ProtocolMode;

use crate::limits::UDP_BUFFER_BYTES;
use crate::start::settings::{Listen, Port, Settings};

/// Maximum number of listeners of one column. The column has a word with one bit for each listener.
pub const LISTENERS_MAX: usize = 62;

#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) columns: Vec<Vec<ColumnListener<Listener>>>,
    pub(crate) datagrams: Vec<Vec<ColumnSocket>>,
    /// The addresses and ports of the UDP sockets, each of them once.
    pub(crate) datagram_addresses: Vec<SocketAddr>,
    /// The addresses of the listeners, with the port that the system chose instead of port 0.
    pub(crate) endpoints: Vec<Endpoint>,
}

/// The transport protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// The reason why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address of `-l`, `-p` or `-U` cannot be opened.
    #[error("failed to listen on {asked}, at {at} ({transport}): {error}")]
    Address {
        /// The address as the user wrote it.
        asked: String,
        /// The address and port.
        at: String,
        /// The protocol.
        transport: Transport,
        /// The reason.
        error: io::Error,
    },
    /// The path of `-s` cannot be opened.
    #[error("failed to listen on UNIX socket {0}: {1}")]
    Unix(PathBuf, io::Error),
    /// There are more addresses than a column can watch.
    #[error(
        "-l gives more than {LISTENERS_MAX} addresses to listen on; give at most {LISTENERS_MAX}"
    )]
    TooMany,
}

/// Opens all listeners. Fails if no address of an `-l` entry can be opened, or if an address fails
/// for a reason that `may_be_skipped` rejects.
pub(crate) fn open(settings: &Settings) -> Result<Listeners, ListenError> {
    let mut listeners = Listeners {
        columns: vec![Vec::new(); settings.columns.count],
        datagrams: vec![Vec::new(); settings.columns.count],
        datagram_addresses: Vec::new(),
        endpoints: Vec::new(),
    };
    if let Some(path) = &settings.unix_path {
        let listener = Listener::unix(path, settings.unix_mask, settings.backlog)
            .map_err(|error| ListenError::Unix(path.clone(), error))?;
        listeners.endpoints.push(listener.endpoint().clone());
        let speak = settings.protocol;
        let socket = Arc::new(listener);
        for column in &mut listeners.columns {
            column.push(ColumnListener { socket: Arc::clone(&socket), speak, shared: true });
        }
        return Ok(listeners);
    }
    for listen in &settings.listen {
        let Some(port) = number(listen.port) else { continue };
        open_entry(settings, (listen, port), Transport::Tcp, |address| {
            open_address(&mut listeners, settings, listen.protocol, address)
        })?;
        if listeners.endpoints.len() > LISTENERS_MAX {
            return Err(ListenError::TooMany);
        }
    }
    if !settings.datagrams.is_empty() {
        open_udp(&mut listeners, settings)?;
    }
    Ok(listeners)
}

fn open_udp(listeners: &mut Listeners, settings: &Settings) -> Result<(), ListenError> {
    for listen in &settings.datagrams {
        let Some(port) = number(listen.port) else { continue };
        open_entry(settings, (listen, port), Transport::Udp, |address| {
            open_datagrams(listeners, settings, listen.protocol, address)
        })?;
        if listeners.datagrams.iter().any(|sockets| sockets.len() > LISTENERS_MAX) {
            return Err(ListenError::TooMany);
        }
    }
    Ok(())
}

fn number(port: Port) -> Option<u16> {
    match port {
        Port::Off => None,
        Port::Any => Some(0),
        Port::Number(number) => Some(number),
    }
}

/// Opens all addresses of one `-l` entry. Logs the addresses that are skipped.
fn open_entry(
    settings: &Settings,
    (listen, port): (&Listen, u16),
    transport: Transport,
    mut open: impl FnMut(SocketAddr) -> io::Result<()>,
) -> Result<(), ListenError> {
    let failed = |at: String, error| {
        let asked = match &settings.inter {
            Some(inter) => format!("one of interface(s) {inter}"),
            None => format!("{transport} port {port}"),
        };
        ListenError::Address { asked, at, transport, error }
    };
    let name = || format!("{}:{port}", listen.host.as_deref().unwrap_or("*"));
    let addresses =
        addresses(listen.host.as_deref(), port).map_err(|error| failed(name(), error))?;
    let mut skipped = Vec::new();
    for address in &addresses {
        match open(*address) {
            Ok(()) => {}
            Err(error) if may_be_skipped(&error) => skipped.push((address, error)),
            Err(error) => return Err(failed(address.to_string(), error)),
        }
    }
    if skipped.len() == addresses.len() {
        let none = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let last = skipped.pop().map(|(address, error)| (address.to_string(), error));
        let (at, error) = last.unwrap_or_else(|| (name(), none()));
        return Err(failed(at, error));
    }
    for (address, error) in skipped {
        log::warn!("WARNING: not listening on {address} ({transport}): {error}");
    }
    Ok(())
}

/// True if the address is in use, or if this system does not support the family of the address.
fn may_be_skipped(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn addresses(host: Option<&str>, port: u16) -> io::Result<Vec<SocketAddr>> {
    let Some(host) = host else {
        let every = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        return Ok(every.map(|ip| SocketAddr::new(ip, port)).to_vec());
    };
    let mut all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    all.dedup();
    Ok(all)
}

fn open_address(
    listeners: &mut Listeners,
    settings: &Settings,
    speak: ProtocolMode,
    address: SocketAddr,
) -> io::Result<()> {
    let hold = ReservedPort::take(address)?;
    for column in &mut listeners.columns {
        let socket = Arc::new(hold.listen(settings.backlog)?);
        column.push(ColumnListener { socket, speak, shared: false });
    }
    listeners.endpoints.push(Endpoint::Tcp(hold.address()));
    Ok(())
}

/// Opens a UDP socket for each column. The sockets share a port, or each socket has its own port.
fn open_datagrams(
    listeners: &mut Listeners,
    settings: &Settings,
    speak: ProtocolMode,
    address: SocketAddr,
) -> io::Result<()> {
    let datagram_bytes_max = datagram_bytes_max(address.ip());
    let columns = u16::try_from(settings.columns.count).map_err(io::Error::other)?;
    let sizes = Sizes { receive_bytes: UDP_BUFFER_BYTES, send_bytes: UDP_BUFFER_BYTES };
    let sockets = match settings.udp_port_per_column {
        true => net::bind_ports(address, columns, sizes)?,
        false => net::bind_columns(address, columns, sizes)?,
    };
    for (column, socket) in listeners.datagrams.iter_mut().zip(sockets) {
        let address = socket.address()?;
        if listeners.datagram_addresses.last() != Some(&address) {
            listeners.datagram_addresses.push(address);
        }
        column.push(ColumnSocket { socket: Arc::new(socket), speak, datagram_bytes_max });
    }
    Ok(())
}

/// Returns the maximum bytes of a datagram from `ip`: memcached's 1,400, or fewer if the interface
/// with that address has a smaller MTU. For a wildcard address, all interfaces are considered.
fn datagram_bytes_max(ip: IpAddr) -> usize {
    let own = net::own_addresses().unwrap_or_default();
    let is_any = |its: &IpAddr| ip.is_unspecified() && ip.is_ipv4() == its.is_ipv4();
    let of_ip = own.iter().filter(|it| is_any(&it.ip) || it.ip == ip);
    let mtu = of_ip.map(|it| it.mtu).min();
    datagram_bytes_for(mtu.unwrap_or(usize::MAX))
}
