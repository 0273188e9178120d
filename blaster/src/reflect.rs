//! A null server: it answers every request in the protocol of the request, and stores nothing.
//!
//! Where: driven in place of a server. The null server's rate is an upper bound for every server on
//! this machine, and for the generator. Its faults test how the generator counts faults.
//! Invariant: all values have the same length, and every key is found, stored or deleted as a
//! request asks. `HELD_BYTES_MAX` and `OUT_BYTES_MAX` limit the memory that a client can use up.
//! The actual places where the server listens are printed before the first request.
//! Source: none; the faults follow the KV-Cache paper's measurements of loss (section 6.2).

mod answer;
mod counts;
mod faults;
pub(crate) mod flags;
mod replies;
mod serve;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use net::{Datagrams, Listener, ReservedPort, Sizes, Waker, bind_columns, bind_ports};

use crate::line::packets;
use crate::target::Place;
pub use answer::NAME;
pub use counts::Counts;
pub use faults::Faults;
pub use flags::{Plan, THREADS_MAX, VALUE_BYTES_MAX};
pub use replies::SendMethod;
use serve::Sockets;

/// Time between two checks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 1024;

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
    pub fn addresses(&self) -> &[Place] {
        &self.addresses
    }

    /// The counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Stops the server and waits until its threads have ended. Fails if a thread has failed.
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

/// Runs the server until Ctrl-C or SIGTERM. Fails if the server cannot listen on a place, or a
/// thread has failed.
pub fn run(plan: &Plan) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let running = serve(plan)?;
    let mut out = io::stdout().lock();
    for place in running.addresses() {
        writeln!(out, "answering on {}", named(place))?;
    }
    out.flush()?;
    // Relaxed: the flag publishes no other data.
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    let is_udp = |place: &&Place| matches!(place, Place::Udp(_));
    let places = running.addresses().iter().filter(is_udp);
    for (place, received) in places.zip(running.counts().received()) {
        let Place::Udp(address) = place else { continue };
        let received: Vec<String> = received.iter().map(u64::to_string).collect();
        writeln!(
            out,
            "udp://{address}: datagrams received by each thread: {}",
            received.join(" ")
        )?;
    }
    if plan.send == SendMethod::Referred {
        // Relaxed: the counts are statistics and order nothing.
        let [referred, copied] = [&running.counts().referred, &running.counts().copied]
            .map(|count| count.load(Ordering::Relaxed));
        writeln!(out, "{referred} values sent by reference, of which the kernel copied {copied}")?;
    }
    // Relaxed: the count is a statistic and orders nothing.
    let misrouted = running.counts().misrouted.load(Ordering::Relaxed);
    if misrouted > 0 {
        writeln!(
            out,
            "{misrouted} datagrams did not reach the thread that the last two bytes of \
             memcached's UDP header name"
        )?;
    }
    running.stop()
}

/// Starts a server. Fails if the server cannot listen on a place, or a thread cannot be started.
pub fn serve(plan: &Plan) -> io::Result<RunningServer> {
    let threads = plan.threads.clamp(1, THREADS_MAX);
    let mut sockets: Vec<Sockets> = Vec::new();
    sockets.resize_with(threads, Sockets::default);
    let mut running = RunningServer {
        addresses: Vec::new(),
        counts: Arc::new(Counts::new(&plan.places, threads)),
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
