//! A null server: it answers every request in the protocol of the request, and stores nothing.
//!
//! Where: driven in place of a server. The null server's rate is an upper bound for every server on
//! this machine, and for the generator. Its faults test how the generator counts faults.
//! Invariant: all values have the same length, and every key is found, stored or deleted as a
//! request asks. `HELD_BYTES_MAX` and `OUT_BYTES_MAX` limit the memory that a client can use up.
//! Source: none; the faults follow the KV-Cache paper's measurements of loss (section 6.2).

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

use crate::line::packets;
use crate::measure::schedule::time;
use crate::target::Place;
use crate::words::values::{cpus, number, or};
pub use faults::Faults;
use replies::SEND_METHODS;
pub use replies::SendMethod;

/// A connection ends if an incomplete request, without the value of a set, is longer than this.
const HELD_BYTES_MAX: usize = 64 << 10;
/// A connection with this number of unsent reply bytes is not read.
const OUT_BYTES_MAX: usize = 1 << 20;
const BACKLOG: i32 = 1024;
/// The version that the null server reports.
pub const NAME: &str = "reflect";
/// Maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of threads.
pub const THREADS_MAX: usize = 1024;

/// Flags of the server, and of its planned faults.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(before_help = flags::ABOUT)]
pub struct Plan {
    /// Address to listen on: HOST:PORT, udp://HOST:PORT, xdp://INTERFACE/HOST:PORT or unix:/PATH.
    /// Port 0 means any free port. xdp:// uses AF_XDP on all queues of the interface; the interface
    /// must have a queue for each thread, and no faults can be injected
    #[arg(required = true, value_name = "PLACE", value_parser = flags::place)]
    pub places: Vec<Place>,
    /// Number of threads that answer
    #[arg(long, short, value_name = "N")]
    #[arg(value_parser = number(1..=THREADS_MAX), default_value = "1")]
    pub threads: usize,
    /// CPUs to pin the threads to, in the order of the threads
    #[arg(long, value_name = "LIST")]
    #[arg(value_parser = or("none", Vec::new(), cpus), default_value = "none")]
    pub cpus: std::vec::Vec<usize>,
    /// Length of every value in bytes
    #[arg(long, value_name = "N")]
    #[arg(value_parser = number(0..=VALUE_BYTES_MAX), default_value = "64")]
    pub value_bytes: usize,
    /// How values are sent on a connection. copied: copied into one buffer with the text of the
    /// reply; gathered: sent from their place in memory (writev); spliced: sent through a pipe
    /// (vmsplice); referred: sent by reference (MSG_ZEROCOPY), and the values that the kernel
    /// copied nevertheless are counted
    #[arg(long, value_name = "WAY", default_value = "copied", conflicts_with = "delay")]
    #[arg(value_parser = PossibleValuesParser::new(SEND_METHODS.map(|(_, name)| name))
        .try_map(|name| SendMethod::named(&name).ok_or("this way to send is unknown")))]
    pub send: SendMethod,
    /// Time by which every reply is delayed
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = or("none", Duration::ZERO, time), default_value = "none")]
    pub delay: Duration,
    /// Stop answering for the time FOR after each time EVERY of answering: 1s,100ms answers for 1
    /// second, stops for 100 ms, and so on
    #[arg(long, value_name = "EVERY,FOR", value_parser = flags::stall)]
    pub stall: Option<(Duration, Duration)>,
    /// Faults of datagrams.
    #[command(flatten)]
    pub faults: Faults,
    /// UDP: send each value of a multiget in a reply of its own, as memcached does
    #[arg(long = "apart")]
    pub is_apart: bool,
    /// UDP: give each thread its own port, from PORT to PORT + threads - 1. Without this flag all
    /// threads share one port, and the last two bytes of memcached's UDP header choose the thread
    /// that answers a request
    #[arg(long = "port-per-thread")]
    pub has_ports: bool,
}

/// Counts since the start of a null server.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests answered. A multiget counts once for each of its keys.
    pub answers: AtomicU64,
    /// Sends by reference that the kernel has finished.
    pub referred: AtomicU64,
    /// Sends by reference whose bytes the kernel has copied nevertheless.
    pub copied: AtomicU64,
    /// UDP: messages dropped.
    pub dropped: AtomicU64,
    /// UDP: messages sent twice.
    pub duplicated: AtomicU64,
    /// UDP: messages that were sent only after the next message.
    pub reordered: AtomicU64,
    /// Stalls that have ended.
    pub stalls: AtomicU64,
    /// UDP: datagrams received, for each place and thread.
    pub received: Vec<Vec<AtomicU64>>,
    /// UDP: datagrams whose flow names a thread other than the receiver.
    pub misrouted: AtomicU64,
}

impl Counts {
    fn new(plan: &Plan, threads: usize) -> Counts {
        let is_udp = |place: &&Place| matches!(place, Place::Udp(_));
        let by_thread = |_| (0..threads).map(|_| AtomicU64::new(0)).collect();
        let received = plan.places.iter().filter(is_udp).map(by_thread).collect();
        Counts { received, ..Counts::default() }
    }

    /// Datagrams received, for each UDP place and thread.
    #[must_use]
    pub fn received(&self) -> Vec<Vec<u64>> {
        // Relaxed: these counts are statistics and order nothing.
        let counts = |place: &Vec<AtomicU64>| {
            place.iter().map(|count| count.load(Ordering::Relaxed)).collect()
        };
        self.received.iter().map(counts).collect()
    }

    /// Relaxed: the count is a statistic and orders nothing.
    fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Ordering::Relaxed);
    }
}

/// A running null server. It stops when it is dropped.
#[derive(Debug)]
pub struct RunningServer {
    addresses: Vec<Place>,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    wakers: Vec<Arc<Waker>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    unix: Vec<Arc<Listener>>,
}

impl RunningServer {
    /// The places where the server listens, with actual ports, in the order of the plan.
    #[must_use]
    pub fn addresses(&self) -> &[Place] {
        &self.addresses
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Stops the server and waits until its threads have ended.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // Release: pairs with the acquire in `serve::run`. No data except the flag is passed on.
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(|waker| waker.wake());
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let panicked = || io::Error::other("a thread of the null server panicked");
            let ended = thread.join().unwrap_or_else(|_| Err(panicked()));
            outcome = outcome.and(ended);
        }
        self.unix.drain(..).for_each(|listener| listener.remove_file());
        outcome
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // A caller who needs the result calls `stop`.
        let _ = self.end();
    }
}

#[derive(Debug, Default)]
struct Sockets {
    listeners: Vec<Arc<Listener>>,
    datagrams: Vec<Datagrams>,
    ports: Vec<net::xdp::Port>,
}

/// Starts a server.
///
/// # Errors
/// The server cannot listen on a place, or a thread cannot be started.
pub fn serve(plan: &Plan) -> io::Result<RunningServer> {
    let threads = plan.threads.clamp(1, THREADS_MAX);
    let mut sockets: Vec<Sockets> = Vec::new();
    sockets.resize_with(threads, Sockets::default);
    let mut running = RunningServer {
        addresses: Vec::new(),
        counts: Arc::new(Counts::new(plan, threads)),
        stop: Arc::default(),
        wakers: Vec::new(),
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
        let waker = Arc::new(Waker::new()?);
        running.wakers.push(Arc::clone(&waker));
        let cpu = plan.cpus.get(thread).copied();
        let (plan, counts) = (Arc::clone(&plan), Arc::clone(&running.counts));
        let stop = Arc::clone(&running.stop);
        let builder = std::thread::Builder::new().name(format!("reflect-{thread}"));
        running.threads.push(builder.spawn(move || {
            if let Some(cpu) = cpu {
                net::pin_thread(cpu)?;
            }
            serve::run((&plan, thread), sockets, &counts, &stop, &waker)
        })?);
    }
    Ok(running)
}

fn named(place: &Place) -> String {
    match place {
        Place::Tcp(address) => address.to_string(),
        Place::Udp(address) => format!("udp://{address}"),
        Place::Xdp(bypass, address) => bypass.target_text(address),
        Place::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Opens a socket for each thread. At a Unix path, all threads share one socket.
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
