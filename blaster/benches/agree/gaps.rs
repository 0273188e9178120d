//! Measures whether kvblaster sends requests at the right times: a receiver records each arrival.
//!
//! Where: the last part of the bench. Invariant: one thread of this process only records when each
//! get arrives, and answers that the key is absent. The printed gaps exclude the first tenth of the
//! arrival times.
//! Source: over loopback, a datagram has reached the receiver's socket when `sendmsg` returns, so
//! gaps between arrivals equal gaps between sends, to within the receiver's delay of 1 to 2 µs.

use super::Settings;
use super::peers::run;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

const ARRIVALS_MAX: usize = 1 << 21;
const HEADER_BYTES: usize = 8;

const ABOUT: &str = "
== Gaps: the times at which requests are sent, measured by the receiver of the datagrams
Equal gaps have a deviation of 0, exponential ones of 1 (standard deviation over mean). `apart` is
the greatest distance between the requested and the measured distribution (Kolmogorov and Smirnov's
D): 0 means that they are the same, 1 that they have nothing in common. For equal gaps it means
little, because any jitter moves half of them below the one value; see their p1 and p99 instead.
";

pub(crate) fn measure(settings: Settings) -> Result<(), Box<dyn Error>> {
    println!("{ABOUT}");
    println!(
        "{:12} {:>9} {:>10} {:>10} {:>9}   {:32} {:>32} {:>7}",
        "gaps",
        "asked/s",
        "mean us",
        "should be",
        "deviation",
        "p1 p10 p50 p90 p99 us",
        "should be",
        "apart"
    );
    for law in ["fixed", "exponential"] {
        for rate in [1_000, 10_000, 50_000, 100_000] {
            let receiver = Receiver::start(settings.server_cpu)?;
            let mut command = Command::new("taskset");
            command.args(["-c", &settings.client_cpu.to_string(), env!("CARGO_BIN_EXE_kvblaster")]);
            let words = format!(
                "run -q --json --no-populate -w uniform --keys 1000 --gap {law} --mix get=1 -c 1 \
                 -r {rate} --schedule 0s+1x{}s udp://{}",
                settings.seconds, receiver.address
            );
            run(command.args(words.split_whitespace()))?;
            row(law, rate, &receiver.stop()?);
        }
    }
    Ok(())
}

fn row(law: &str, rate: u32, arrivals_ns: &[u64]) {
    let settled = &arrivals_ns[arrivals_ns.len() / 10..];
    let mut gaps: Vec<f64> =
        settled.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 / 1e3).collect();
    if gaps.len() < 100 {
        return println!("{law:12} {rate:>9} only {} datagrams arrived", arrivals_ns.len());
    }
    gaps.sort_by(f64::total_cmp);
    let count = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / count;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
    let wanted = 1e6 / f64::from(rate);
    let is_fixed = law == "fixed";
    let below = |gap: f64| match is_fixed {
        true => f64::from(u8::from(gap >= wanted)),
        false => 1.0 - (-gap / wanted).exp(),
    };
    let apart = gaps.iter().enumerate().fold(0.0_f64, |most, (nth, gap)| {
        let (before, after) = (nth as f64 / count, (nth + 1) as f64 / count);
        most.max((below(*gap) - before).abs()).max((below(*gap) - after).abs())
    });
    let percents = [1_u32, 10, 50, 90, 99];
    let seen = percents.map(|percent| {
        let at = gaps.len() * percent as usize / 100;
        format!("{:.1}", gaps[at.min(gaps.len() - 1)])
    });
    let should = percents.map(|percent| {
        let share = f64::from(percent) / 100.0;
        format!("{:.1}", if is_fixed { wanted } else { -wanted * (1.0 - share).ln() })
    });
    println!(
        "{law:12} {rate:>9} {mean:>10.3} {wanted:>10.3} {:>9.3}   {:32} {:>32} {:>7}",
        variance.sqrt() / mean,
        seen.join(" "),
        should.join(" "),
        if is_fixed { "-".to_owned() } else { format!("{apart:.3}") },
    );
}

/// A UDP server that records the arrival time of each request.
struct Receiver {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<u64>>>,
}

impl Receiver {
    fn start(cpu: usize) -> io::Result<Receiver> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            net::pin_thread(cpu)?;
            record_arrivals(&socket, &over)
        });
        Ok(Receiver { address, is_over, thread })
    }

    fn stop(self) -> io::Result<Vec<u64>> {
        // Relaxed: the flag publishes no other data.
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the receiver died")))
    }
}

/// Polls `socket` until `is_over` is set. Returns when each get arrived, in ns since the start.
fn record_arrivals(socket: &UdpSocket, is_over: &AtomicBool) -> io::Result<Vec<u64>> {
    let start = Instant::now();
    let mut arrivals_ns = Vec::with_capacity(ARRIVALS_MAX);
    let mut datagram = [0; 2048];
    let mut reply = [0; 64];
    // Relaxed: the flag publishes no other data.
    while !is_over.load(Ordering::Relaxed) {
        let Ok((bytes, source)) = socket.recv_from(&mut datagram) else {
            std::hint::spin_loop();
            continue;
        };
        let now_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Some((header, request)) = datagram[..bytes].split_at_checked(HEADER_BYTES) else {
            continue;
        };
        let said: &[u8] = if request.starts_with(b"get ") {
            if arrivals_ns.len() < ARRIVALS_MAX {
                arrivals_ns.push(now_ns);
            }
            b"END\r\n"
        } else {
            b"VERSION 0\r\n"
        };
        // The reply's header has the request's id, and says that the reply is one datagram.
        reply[..2].copy_from_slice(&header[..2]);
        reply[2..HEADER_BYTES].copy_from_slice(&[0, 0, 0, 1, 0, 0]);
        reply[HEADER_BYTES..HEADER_BYTES + said.len()].copy_from_slice(said);
        // A reply that cannot be sent is dropped, as if the network had lost it.
        let _ = socket.send_to(&reply[..HEADER_BYTES + said.len()], source);
    }
    Ok(arrivals_ns)
}
