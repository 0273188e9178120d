//! Floods of datagrams that request as much work as possible, or are parts of incomplete messages.
//!
//! Where: beside the other actors; sends from loopback or from the other end of the link.
//! Invariant: the server answers a client that gets one key, whatever else arrives over UDP.
//! Requests to shut down, to flush or to change a limit have no effect that other actors find.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use protocol::udp::Header;

use crate::MTU;
use crate::clients::WIDE;
use crate::measure::{Outcome, fail};
use crate::site::{Progress, RunControl, Site};
use testing::random::{Random, hash};

/// Number of datagrams in a burst. With the pauses, about 2,000 datagrams a second are sent.
const BURST: u64 = 32;
const PAUSE_MS_MAX: u32 = 32;
/// Number of sockets. The server sees each socket as a different sender.
const SENDERS: usize = 64;
/// Length of a message, which must fit in one packet: packets over AF_XDP are not fragmented.
const MESSAGE_BYTES: usize = MTU as usize - 48;
/// If no answer arrives in this time, the client sends its request again.
const AGAIN: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(300);

/// A message contains one of these requests as often as the request fits.
const REPEATED: [&str; 8] = [
    "get n\r\n",
    "stats slabs\r\n",
    "stats columns\r\n",
    "stats latency\r\n",
    "stats conns\r\n",
    "stats detail dump\r\n",
    "lru_crawler metadump all\r\n",
    "mg n v k O123\r\n",
];
const OPERATORS: [&str; 6] = [
    "flush_all\r\n",
    "shutdown\r\n",
    "cache_memlimit 1\r\n",
    "verbosity 2\r\n",
    "stats reset\r\n",
    "stats detail on\r\n",
];
const BINARY_DUMP: &[u8] = b"\x80\x10\x00\x0b\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0\0\0\0\0\0detail dump";

fn message(random: &mut Random) -> Vec<u8> {
    let fill = |text: &[u8]| text.repeat(MESSAGE_BYTES / text.len());
    match random.number(6) {
        0 => fill(random.pick(&OPERATORS).as_bytes()),
        1 => fill(BINARY_DUMP),
        2 => [b"get", &b" n".repeat(MESSAGE_BYTES / 2 - 4)[..], b"\r\n"].concat(),
        // The reply takes hundreds of datagrams.
        3 => format!("get {WIDE}\r\n").into_bytes(),
        4 => (0..MESSAGE_BYTES).map(|_| random.next().to_le_bytes()[0]).collect(),
        _ => fill(random.pick(&REPEATED).as_bytes()),
    }
}

fn datagram(random: &mut Random) -> Vec<u8> {
    let id = random.next().to_le_bytes();
    let id = u16::from_le_bytes([id[0], id[1]]);
    let header = match random.one_in(4) {
        true => Header { id, number: id % 8, total: 8, flow: 0 },
        false => Header::request(id, 0),
    };
    [&header.bytes()[..], &message(random)].concat()
}

fn socket(at: SocketAddr) -> Outcome<UdpSocket> {
    let socket = UdpSocket::bind(if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(at)?;
    Ok(socket)
}

pub(crate) fn run(
    site: &Site<'_>,
    seed: u64,
    control: &RunControl,
    progress: &Progress,
) -> Outcome<String> {
    let mut random = Random::new(hash(seed, 10_000));
    let at: SocketAddr = site.address().parse()?;
    let senders: Vec<UdpSocket> = (0..SENDERS).map(|_| socket(at)).collect::<Outcome<_>>()?;
    let asker = socket(at)?;
    asker.set_read_timeout(Some(AGAIN))?;
    let (mut unsent, mut again) = (0_u64, 0_u64);
    while control.is_running() {
        for _ in 0..BURST {
            // Nobody reads the replies; the kernel drops them. A send fails while the link is down.
            let sender = &senders[random.index(SENDERS)];
            unsent += u64::from(sender.send(&datagram(&mut random)).is_err());
        }
        progress.add(BURST);
        again += ask(&asker, progress.count(), control)?;
        control.pause(Duration::from_millis(random.number(PAUSE_MS_MAX).into()));
    }
    let counts = refused(site)?;
    Ok(format!(
        "{} datagrams, {unsent} of them not sent, {again} gets repeated, {counts}",
        progress.count()
    ))
}

/// Sends a get for an absent key until an answer comes, and returns the number of repetitions.
fn ask(asker: &UdpSocket, number: u64, control: &RunControl) -> Outcome<u64> {
    let [low, high, ..] = number.to_le_bytes();
    let id = u16::from_le_bytes([low, high]);
    let request = [&Header::request(id, 0).bytes()[..], b"get flooded\r\n"].concat();
    let (start, mut again, mut answer) = (Instant::now(), 0, [0; 64]);
    loop {
        // While the link is down, the send fails. The next pass of the loop sends again.
        let _ = asker.send(&request);
        let sent = Instant::now();
        while sent.elapsed() < AGAIN {
            let Ok(bytes) = asker.recv(&mut answer) else { continue };
            // An answer with another id belongs to an earlier request.
            match Header::read(&answer[..bytes]) {
                Some((header, b"END\r\n")) if header.id == id => return Ok(again),
                Some((_, b"END\r\n")) => {}
                _ => {
                    let answer = answer[..bytes].escape_ascii().to_string();
                    return fail(format!("the answer to a get is {answer:?}"));
                }
            }
        }
        if !control.is_running() {
            return Ok(again);
        }
        if start.elapsed() > PATIENCE {
            return fail(format!("a get was not answered for {PATIENCE:?}"));
        }
        again += 1;
    }
}

/// Returns the server's counts of refused and dropped datagrams. Fails if one of them is 0.
fn refused(site: &Site<'_>) -> Outcome<String> {
    let rows = site.text()?.stats("stats udp")?;
    let mut counts = Vec::new();
    for name in ["udp_refused", "udp_dropped_work", "udp_dropped_incomplete"] {
        match site.number(&rows, name)? {
            0 => return fail(format!("{}: the statistic {name} is still 0", site.name)),
            count => counts.push(format!("{name} {count}")),
        }
    }
    Ok(counts.join(", "))
}
