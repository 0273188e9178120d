//! Opening the listeners that the settings ask for.
//!
//! Where: once, before there are columns.
//! Invariant: every column has its own listener for every TCP address, so the kernel spreads
//! connections over columns; a Unix socket has one listener that all columns share. An address that
//! is taken is passed over if another of the same `-l` entry could be had.
//! Source: memcached 1.6.45 `server_sockets`, `server_socket`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use net::{Listener, Place, PortHold};
use protocol::Speak;

use crate::settings::{Listen, Port, Protocol, Settings};

/// Listeners of one column: the bits of a word tell which are ready.
pub const SOURCES_MAX: usize = 62;

/// A listener as one column sees it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) listener: Arc<Listener>,
    pub(crate) speak: Speak,
    /// Other columns have it too.
    pub(crate) shared: bool,
}

/// The open listeners.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// For each column, its own.
    pub(crate) columns: Vec<Vec<Source>>,
    /// Where, with real ports.
    pub(crate) places: Vec<Place>,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// `-p`, nothing given with `-l`.
    #[error("failed to listen on TCP port {0}: {1}")]
    Port(u16, io::Error),
    /// `-l`.
    #[error("failed to listen on one of interface(s) {0}: {1}")]
    Interface(String, io::Error),
    /// `-s`.
    #[error("failed to listen on UNIX socket {0}: {1}")]
    Unix(PathBuf, io::Error),
    /// More addresses than a column can watch.
    #[error("more than {SOURCES_MAX} addresses to listen on")]
    TooMany,
}

/// Opens them all.
///
/// # Errors
/// An entry of which no address could be had, or one that is not ours.
pub(crate) fn open(settings: &Settings) -> Result<Listeners, ListenError> {
    let mut listeners =
        Listeners { columns: vec![Vec::new(); settings.columns], places: Vec::new() };
    if let Some(path) = &settings.unix_path {
        let listener = Listener::unix(path, settings.unix_mask, settings.backlog)
            .map_err(|error| ListenError::Unix(path.clone(), error))?;
        listeners.places.push(listener.place().clone());
        let speak = speak(settings.protocol);
        let listener = Arc::new(listener);
        for column in &mut listeners.columns {
            column.push(Source { listener: Arc::clone(&listener), speak, shared: true });
        }
        return Ok(listeners);
    }
    for listen in &settings.listen {
        let Some(port) = number(listen.port) else { continue };
        open_entry(&mut listeners, settings, listen, port)
            .map_err(|error| named(settings, port, error))?;
        if listeners.places.len() > SOURCES_MAX {
            return Err(ListenError::TooMany);
        }
    }
    Ok(listeners)
}

fn named(settings: &Settings, port: u16, error: io::Error) -> ListenError {
    match &settings.inter {
        Some(inter) => ListenError::Interface(inter.clone(), error),
        None => ListenError::Port(port, error),
    }
}

fn number(port: Port) -> Option<u16> {
    match port {
        Port::Off => None,
        Port::Any => Some(0),
        Port::Number(number) => Some(number),
    }
}

fn speak(protocol: Protocol) -> Speak {
    match protocol {
        Protocol::Auto => Speak::Auto,
        Protocol::Ascii => Speak::Ascii,
        Protocol::Binary => Speak::Binary,
    }
}

/// All addresses of one entry, one listener per column for each.
fn open_entry(
    listeners: &mut Listeners,
    settings: &Settings,
    listen: &Listen,
    port: u16,
) -> io::Result<()> {
    let mut opened = 0;
    let mut passed_over = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses(listen.host.as_deref(), port)? {
        match open_address(listeners, settings, speak(listen.protocol), address) {
            Ok(()) => opened += 1,
            Err(error) if may_be_passed_over(&error) => passed_over = error,
            Err(error) => return Err(error),
        }
    }
    if opened == 0 { Err(passed_over) } else { Ok(()) }
}

/// An address in use, or of a family this system does not have.
fn may_be_passed_over(error: &io::Error) -> bool {
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
    speak: Speak,
    address: SocketAddr,
) -> io::Result<()> {
    let hold = PortHold::take(address)?;
    for column in &mut listeners.columns {
        let listener = Arc::new(hold.listen(settings.backlog)?);
        column.push(Source { listener, speak, shared: false });
    }
    listeners.places.push(Place::Tcp(hold.address()));
    Ok(())
}
