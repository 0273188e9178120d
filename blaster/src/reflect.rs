//! A null server: it answers every request unread, in the protocol of the request.
//!
//! Where: in a server's place. Its rate bounds what any server could reach on this machine, and
//! shows what the load generator itself can drive; its planned faults show whether the generator
//! measures them right.
//! Invariant: it stores nothing. Every get is a hit of the same length, every set is stored, every
//! delete deletes; `HELD_BYTES_MAX` and `OUT_BYTES_MAX` bound what a peer can make it hold.
//! Source: `kvblaster reflect`; faults after the paper's measurements of loss (section 6.2).

mod answer;
mod faults;
pub mod flags;
mod replies;
mod serve;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use net::{Datagrams, Listener, ReservedPort, Sizes, Waker, bind_columns, bind_ports};

use crate::flags::{cpus, number, or, time};
use crate::packets;
use crate::target::Place;
pub use faults::Faults;
use replies::WAYS;
pub use replies::Way;

/// Most bytes of an incomplete request; the values of sets are skipped as they arrive.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Bytes of unsent replies above which a connection is not read.
const OUT_BYTES_MAX: usize = 1 << 20;
const BACKLOG: i32 = 1024;
/// The version that the null server reports.
pub const NAME: &str = "reflect";
/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Most threads.
pub const THREADS_MAX: usize = 1024;

/// Flags of the server, and of its planted faults.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(before_help = flags::ABOUT)]
pub struct Plan {
    /// HOST:PORT, udp://HOST:PORT, xdp://INTERFACE/HOST:PORT (AF_XDP, all queues, at least one for
    /// each thread; no faults can be planted there) or unix:/PATH; port 0 takes a free one
    #[arg(required = true, value_name = "PLACE", value_parser = flags::place)]
    pub places: Vec<Place>,
    /// Threads that answer
    #[arg(long, short, value_name = "N")]
    #[arg(value_parser = number(1..=THREADS_MAX), default_value = "1")]
    pub threads: usize,
    /// CPUs the threads are pinned to, one after the other
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    pub cpus: std::vec::Vec<usize>,
    /// Bytes of every value
    #[arg(long, value_name = "N")]
    #[arg(value_parser = number(0..=VALUE_BYTES_MAX), default_value = "64")]
    pub value_bytes: usize,
    /// How values get into the socket of a connection: copied behind the text before them; gathered
    /// from where they lie (writev); spliced through a pipe (vmsplice); or referred to
    /// (MSG_ZEROCOPY), where at the end stands how many the kernel has copied nevertheless
    #[arg(long, value_name = "WAY", default_value = "copied", conflicts_with = "delay")]
    #[arg(value_parser = PossibleValuesParser::new(WAYS.map(|(_, name)| name))
        .try_map(|name| Way::named(&name).ok_or("no way to send")))]
    pub send: Way,
    /// Send every reply later by this
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = or("none", Duration::ZERO, time), default_value = "none")]
    pub delay: Duration,
    /// Do nothing for a while, every so often, as in 1s,100ms
    #[arg(long, value_name = "EVERY,FOR", value_parser = flags::stall)]
    pub stall: Option<(Duration, Duration)>,
    /// Faults of datagrams.
    #[command(flatten)]
    pub faults: Faults,
    /// UDP: each value of a multiget in a reply of its own, as memcached
    #[arg(long = "apart")]
    pub is_apart: bool,
    /// UDP: a port for each thread, PORT to PORT + threads - 1; else one for all, where a request's
    /// flow names its thread
    #[arg(long = "port-per-thread")]
    pub has_ports: bool,
}

/// The counts of a null server so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests answered, each key of a multiget counted.
    pub answers: AtomicU64,
    /// Sends of values by reference that the kernel has reported as finished.
    pub referred: AtomicU64,
    /// Sends of values by reference whose bytes the kernel has copied nevertheless.
    pub copied: AtomicU64,
    /// UDP: messages dropped.
    pub dropped: AtomicU64,
    /// UDP: messages sent twice.
    pub duplicated: AtomicU64,
    /// UDP: messages sent after the next one.
    pub reordered: AtomicU64,
    /// Stalls that have ended.
    pub stalls: AtomicU64,
    /// UDP: datagrams received, for each place by thread.
    pub reached: Vec<Vec<AtomicU64>>,
    /// UDP: datagrams whose flow names another thread than the one that they came to.
    pub misrouted: AtomicU64,
}

impl Counts {
    fn new(plan: &Plan, threads: usize) -> Counts {
        let is_udp = |place: &&Place| matches!(place, Place::Udp(_));
        let reached = |_| (0..threads).map(|_| AtomicU64::new(0)).collect();
        let reached = plan.places.iter().filter(is_udp).map(reached).collect();
        Counts { reached, ..Counts::default() }
    }

    /// Number of datagrams that came to each thread, for each UDP place.
    #[must_use]
    pub fn reached(&self) -> Vec<Vec<u64>> {
        // Relaxed: statistics, like in `add`.
        let counts = |place: &Vec<AtomicU64>| {
            place.iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        self.reached.iter().map(counts).collect()
    }

    /// Adds to one of the counts. Relaxed: a statistic; it orders nothing and pairs with nothing.
    fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Ordering::Relaxed);
    }
}

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<Place>,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    bells: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix: Vec<Arc<Listener>>,
}

impl Running {
    /// The places where it listens, with real ports, in the order of the plan.
    #[must_use]
    pub fn addresses(&self) -> &[Place] {
        &self.addresses
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Stops it and waits until it is gone.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // Release: pairs with the acquire in `serve::run`; nothing else is handed over.
        self.stop.store(true, Ordering::Release);
        self.bells.iter().for_each(|bell| bell.wake());
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")));
            outcome = outcome.and(ended);
        }
        self.unix.drain(..).for_each(|listener| listener.remove_file());
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The outcome is dropped: a caller who wants it calls `stop`.
        let _ = self.end();
    }
}

#[derive(Debug, Default)]
struct Sockets {
    listeners: Vec<Arc<Listener>>,
    datagrams: Vec<Datagrams>,
    /// AF_XDP queues of interfaces.
    ports: Vec<net::xdp::Port>,
}

/// Starts a server.
///
/// # Errors
/// A place cannot be listened on, or a thread cannot be started.
pub fn serve(plan: &Plan) -> io::Result<Running> {
    let threads = plan.threads.clamp(1, THREADS_MAX);
    let mut sockets: Vec<Sockets> = Vec::new();
    sockets.resize_with(threads, Sockets::default);
    let mut running = Running {
        addresses: Vec::new(),
        counts: Arc::new(Counts::new(plan, threads)),
        stop: Arc::default(),
        bells: Vec::new(),
        threads: Vec::new(),
        unix: Vec::new(),
    };
    for place in &plan.places {
        let at = listen(place, plan.has_ports, &mut sockets, &mut running.unix);
        let at = at.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {}: {error}", named(place)))
        })?;
        running.addresses.push(at);
    }
    let plan =
        Arc::new(Plan { value_bytes: plan.value_bytes.min(VALUE_BYTES_MAX), ..plan.clone() });
    for (thread, sockets) in sockets.into_iter().enumerate() {
        let bell = Arc::new(Waker::new()?);
        running.bells.push(Arc::clone(&bell));
        let cpu = plan.cpus.get(thread).copied();
        let (plan, counts) = (Arc::clone(&plan), Arc::clone(&running.counts));
        let stop = Arc::clone(&running.stop);
        let builder = std::thread::Builder::new().name(format!("reflect-{thread}"));
        running.threads.push(builder.spawn(move || {
            if let Some(cpu) = cpu {
                net::pin_thread(cpu)?;
            }
            serve::run((&plan, thread), sockets, &counts, &stop, &bell)
        })?);
    }
    Ok(running)
}

/// A place as the command line writes it.
fn named(place: &Place) -> String {
    match place {
        Place::Tcp(address) => address.to_string(),
        Place::Udp(address) => format!("udp://{address}"),
        Place::Xdp(bypass, address) => bypass.to(address),
        Place::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Opens a socket for each thread, or one for all where that is not possible.
fn listen(
    place: &Place,
    has_ports: bool,
    sockets: &mut [Sockets],
    unix: &mut Vec<Arc<Listener>>,
) -> io::Result<Place> {
    match place {
        Place::Tcp(address) => {
            let hold = ReservedPort::take(*address)?;
            for own in sockets {
                own.listeners.push(Arc::new(hold.listen(BACKLOG)?));
            }
            Ok(Place::Tcp(hold.address()))
        }
        Place::Unix(path) => {
            let listener = Arc::new(Listener::unix(path, 0o700, BACKLOG)?);
            unix.push(Arc::clone(&listener));
            sockets.iter_mut().for_each(|own| own.listeners.push(Arc::clone(&listener)));
            Ok(place.clone())
        }
        Place::Udp(address) => {
            let columns = u16::try_from(sockets.len()).unwrap_or(u16::MAX);
            let bind = if has_ports { bind_ports } else { bind_columns };
            let bound = bind(*address, columns, Sizes::default())?;
            let first = bound.first().map_or(Ok(*address), Datagrams::address)?;
            for (own, socket) in sockets.iter_mut().zip(bound) {
                own.datagrams.push(socket);
            }
            Ok(Place::Udp(first))
        }
        Place::Xdp(bypass, address) => {
            let port = address.port();
            let ports = packets::open(bypass, sockets.len(), &[address.ip()], port..=port)?;
            let threads = sockets.len();
            for (at, port) in ports.into_iter().enumerate() {
                sockets[at % threads].ports.push(port);
            }
            Ok(place.clone())
        }
    }
}
