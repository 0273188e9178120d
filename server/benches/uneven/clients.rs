//! Clients that put full or light load on one column.
//!
//! Where: threads of this process, whose CPU time counts as the clients' CPU time.
//! Invariant: a wrong reply ends the run. Under light load each request has a planned time, and its
//! response time is measured from that time.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use protocol::udp::Header;

use crate::Options;
use crate::measure::launched::cpu_seconds;
use crate::measure::statistics::count_of;
use crate::measure::wire::Wire;
use crate::measure::{Outcome, fail};
use crate::site::{Site, Transport};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Each client sends its next requests as soon as its last requests are answered.
    Full { warmup: f64, seconds: f64 },
    /// The clients together send `rate` requests per second.
    Light { rate: u32, seconds: f64 },
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Load::Full { .. }) { "full" } else { "light" })
    }
}

pub(crate) struct RunFigures {
    pub(crate) per_s: f64,
    pub(crate) p99_us: f64,
    pub(crate) server_us: f64,
    pub(crate) clients_us: f64,
}

const WARM: u32 = 0;
const COUNT: u32 = 1;
const OVER: u32 = 2;

pub(crate) fn measure(site: &Site, options: &Options, load: Load) -> Outcome<RunFigures> {
    let mut control = site.control()?;
    let work = Work::new(&mut control, options)?;
    let mut connections = Vec::new();
    if site.way == Transport::Tcp {
        let streams = site.streams(&mut control, options.connections)?;
        connections.extend(streams.into_iter().map(Connection::Stream));
    } else {
        for _ in 0..options.connections {
            connections.push(Connection::Socket { socket: site.socket()?, id: 0 });
        }
    }
    let count = u32::try_from(connections.len().max(1))?;
    let (warmup, seconds, gap) = match load {
        Load::Full { warmup, seconds } => (warmup, seconds, None),
        Load::Light { rate, seconds } => {
            (0.2, seconds, Some(Duration::from_secs(1) * count / rate.max(1)))
        }
    };
    let phase = AtomicU32::new(WARM);
    std::thread::scope(|scope| {
        let clients = connections.into_iter().zip(0..).map(|(connection, at)| {
            // Spread the clients' planned times evenly over the gap between two requests.
            let pace = gap.map(|gap| (Instant::now() + gap * at / count, gap));
            let (work, phase) = (&work, &phase);
            scope.spawn(move || ask(connection, work, pace, phase))
        });
        let clients: Vec<_> = clients.collect();
        std::thread::sleep(Duration::from_secs_f64(warmup));
        let (server_s, clients_s, start) =
            (cpu_seconds(&site.server)?, own_cpu_s(), Instant::now());
        phase.store(COUNT, Ordering::Relaxed); // the phase orders no other memory
        std::thread::sleep(Duration::from_secs_f64(seconds));
        phase.store(OVER, Ordering::Relaxed); // as above
        let passed_s = start.elapsed().as_secs_f64();
        let (server_s, clients_s) =
            (cpu_seconds(&site.server)? - server_s, own_cpu_s() - clients_s);
        let mut times = Vec::new();
        for client in clients {
            match client.join() {
                Ok(all) => times.extend(all.map_err(|error| format!("{}: {error}", site.name()))?),
                Err(_) => return fail("a client panicked".to_owned()),
            }
        }
        times.sort_unstable();
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
        let requests = count_of(times.len() * options.in_flight);
        Ok(RunFigures {
            per_s: requests / passed_s,
            p99_us: p99.as_secs_f64() * 1e6,
            server_us: server_s / requests * 1e6,
            clients_us: clients_s / requests * 1e6,
        })
    })
}

struct Work {
    request: Vec<u8>,
    reply: Vec<u8>,
    in_flight: usize,
}

impl Work {
    fn new(control: &mut Wire, options: &Options) -> Outcome<Work> {
        let (mut request, mut reply) = (String::from("get"), String::new());
        for key in 0..options.keys {
            let value = format!("{key:x}.").repeat(options.value_bytes);
            let value = &value[..options.value_bytes];
            if control.line(&format!("set key-{key} 0 0 {}\r\n{value}", value.len()))? != "STORED" {
                return fail(format!("key-{key} was not stored"));
            }
            request += &format!(" key-{key}");
            reply += &format!("VALUE key-{key} 0 {}\r\n{value}\r\n", value.len());
        }
        let (request, reply) = (request + &" n".repeat(options.misses) + "\r\n", reply + "END\r\n");
        let in_flight = options.in_flight;
        Ok(Work { request: request.into_bytes(), reply: reply.into_bytes(), in_flight })
    }
}

enum Connection {
    Stream(TcpStream),
    Socket { socket: UdpSocket, id: u16 },
}

/// `pace` is the first planned time and the gap between requests; without it the client sends as
/// fast as it can. Returns the measured response times.
fn ask(
    mut connection: Connection,
    work: &Work,
    pace: Option<(Instant, Duration)>,
    phase: &AtomicU32,
) -> io::Result<Vec<Duration>> {
    let (mut times, mut due) = (Vec::new(), pace.map(|(first, _)| first));
    loop {
        if let (Some(due), Some((_, gap))) = (&mut due, pace) {
            *due += gap;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let start = due.unwrap_or_else(Instant::now);
        let now = phase.load(Ordering::Relaxed); // the phase orders no other memory
        match &mut connection {
            Connection::Stream(stream) => over_stream(stream, work)?,
            Connection::Socket { socket, id } => over_socket(socket, id, work)?,
        }
        match now {
            WARM => {}
            COUNT => times.push(start.elapsed()),
            _ => return Ok(times),
        }
    }
}

fn over_stream(stream: &mut TcpStream, work: &Work) -> io::Result<()> {
    stream.write_all(&work.request.repeat(work.in_flight))?;
    let mut got = vec![0; work.reply.len()];
    for _ in 0..work.in_flight {
        stream.read_exact(&mut got)?;
        same(work, &got)?;
    }
    Ok(())
}

fn over_socket(socket: &UdpSocket, id: &mut u16, work: &Work) -> io::Result<()> {
    let mut requests = Vec::new();
    for _ in 0..work.in_flight {
        *id = id.wrapping_add(1);
        socket.send(&[&Header::request(*id, 0).bytes()[..], &work.request].concat())?;
        // The request's id, the parts of its answer, and the number of parts received.
        requests.push((*id, Vec::<Vec<u8>>::new(), 0));
    }
    let (mut missing, mut datagram) = (work.in_flight, [0; 2000]);
    while missing > 0 {
        let bytes = socket.recv(&mut datagram)?;
        let Some((header, part)) = Header::read(&datagram[..bytes]) else {
            return Err(io::Error::other("an answer without a UDP header"));
        };
        let Some((_, parts, received)) = requests.iter_mut().find(|(id, ..)| *id == header.id)
        else {
            return Err(io::Error::other(format!("no request waits for answer {}", header.id)));
        };
        parts.resize(header.total.into(), Vec::new());
        parts[usize::from(header.number)] = part.to_vec();
        *received += 1;
        if *received == usize::from(header.total) {
            same(work, &parts.concat())?;
            missing -= 1;
        }
    }
    Ok(())
}

fn same(work: &Work, got: &[u8]) -> io::Result<()> {
    if got == work.reply {
        return Ok(());
    }
    Err(io::Error::other("a wrong reply"))
}

fn own_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos).as_secs_f64()
}
