//! Sockets of several columns at one port, and the program that spreads datagrams over the sockets.
//!
//! ```text
//! 0                     6      8
//! | id, number, total   | flow | request       flow n: column n - 1; other flows: any column
//! ```
//!
//! Where: the sockets are opened before the columns' loops begin. The kernel runs the program for
//! each arriving datagram; a burst that the kernel has joined goes to its first datagram's column.
//! Invariant: socket n of the port belongs to column n, because the kernel numbers sockets in the
//! order in which they are bound. Opening fails if another process has a socket at the port,
//! because the first socket is bound before the sharing of the port is allowed.
//! Source: socket(7), `SO_ATTACH_REUSEPORT_CBPF`; `run_bpf_filter` in `net/core/sock_reuseport.c`,
//! which passes the UDP payload to the program.

use std::io;
use std::net::SocketAddr;

use rustix::net::{bind, sockopt};

use super::socket::{Datagrams, Sizes, udp_socket};
use crate::option::set_option;

/// Offset of the flow in a datagram.
const FLOW_AT: u32 = 6;
/// Length of the shortest datagram that has a flow.
const FLOW_END: u32 = 8;
/// Maximum number of attempts to find a free port that is followed by further free ports.
const ATTEMPTS_MAX: usize = 64;

/// The program's result if it selects no socket; the kernel then selects by a hash of addresses.
const NOBODY: u32 = u32::MAX;

/// The program: `if len >= 8 { (u16 at offset 6) - 1 } else { NOBODY }`. For flow 0 the subtraction
/// gives `NOBODY`. The program checks `len`, because a load beyond the end would select column 0.
const PROGRAM: [libc::sock_filter; 6] = [
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0),
    step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 3, FLOW_END),
    step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, FLOW_AT),
    step(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, 0, 1),
    step(libc::BPF_RET | BPF_A, 0, 0),
    step(libc::BPF_RET | libc::BPF_K, 0, NOBODY),
];
const BPF_A: u32 = 0x10;

/// Makes an instruction. A jump whose condition is false skips `or_else` instructions.
#[expect(clippy::cast_possible_truncation, reason = "a code of classic BPF has 8 bits")]
const fn step(code: u32, or_else: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: or_else, k }
}

/// Makes a socket for each column, all at one port; for port 0 the system chooses a free port. A
/// datagram of flow n goes to the socket of column n - 1. If a datagram names no column or is too
/// short for a flow, the kernel selects a column, the same for all datagrams of a sender. Fails if
/// another socket is bound to the port, the machine lacks the address, or no descriptor is left.
pub fn bind_columns(address: SocketAddr, columns: u16, sizes: Sizes) -> io::Result<Vec<Datagrams>> {
    bind_steered(address, columns, sizes, &PROGRAM)
}

fn bind_steered(
    address: SocketAddr,
    columns: u16,
    sizes: Sizes,
    program: &[libc::sock_filter],
) -> io::Result<Vec<Datagrams>> {
    let first = Datagrams::bind(address, sizes)?;
    let address = first.address()?;
    let mut sockets = vec![first];
    if columns > 1 {
        sockopt::set_socket_reuseport(&sockets[0].0, true)?;
    }
    for _ in 1..columns {
        let fd = udp_socket(address, sizes)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        bind(&fd, &address)?;
        sockets.push(Datagrams(fd));
    }
    if columns > 1 {
        let len = u16::try_from(program.len()).map_err(io::Error::other)?;
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
        set_option(&sockets[0].0, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)?;
    }
    Ok(sockets)
}

/// Makes a socket for each column: column n has the first port plus n. For port 0 the system
/// chooses the first port. Fails if a port is taken or beyond 65,535, the machine lacks the
/// address, or no descriptor is left.
pub fn bind_ports(address: SocketAddr, columns: u16, sizes: Sizes) -> io::Result<Vec<Datagrams>> {
    let attempts = if address.port() == 0 { ATTEMPTS_MAX } else { 1 };
    let mut outcome = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..attempts {
        outcome = bind_ports_once(address, columns, sizes);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn bind_ports_once(address: SocketAddr, columns: u16, sizes: Sizes) -> io::Result<Vec<Datagrams>> {
    let first = Datagrams::bind(address, sizes)?;
    let mut at = first.address()?;
    let mut sockets = vec![first];
    for _ in 1..columns {
        let port = at.port().checked_add(1);
        at.set_port(port.ok_or(io::Error::from(io::ErrorKind::AddrNotAvailable))?);
        sockets.push(Datagrams::bind(at, sizes)?);
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Calls, Inbox, Outbox, SLOT_BYTES_MAX};

    const COLUMNS: u16 = 5;
    const FAMILIES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

    fn datagram(flow: u16) -> Vec<u8> {
        [&[0, 7, 0, 0, 0, 1][..], &flow.to_be_bytes(), b"version\r\n"].concat()
    }

    /// Sends each datagram from a separate port. When `send` returns, all datagrams have arrived.
    fn send(to: &Datagrams, datagrams: &[Vec<u8>]) {
        let (calls, mut outbox) = (Calls::default(), Outbox::new(1, 1, true));
        for datagram in datagrams {
            let client = Datagrams::connect(to.address().unwrap(), Sizes::default()).unwrap();
            let mut batch = outbox.open();
            assert!(batch.add(None, b"", [&datagram[..]]));
            assert_eq!(batch.post(&client, &calls).sent, 1);
        }
    }

    fn flows(sockets: &[Datagrams]) -> Vec<Vec<u16>> {
        let (calls, mut inbox) = (Calls::default(), Inbox::new(64, SLOT_BYTES_MAX));
        let got = |socket: &Datagrams| {
            let mut flows = Vec::new();
            while socket.receive(&mut inbox, &calls).datagrams > 0 {
                let flow = |bytes: &[u8]| match bytes {
                    [_, _, _, _, _, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
                    _ => 0,
                };
                flows.extend(inbox.datagrams().map(|datagram| flow(datagram.bytes)));
            }
            flows
        };
        sockets.iter().map(got).collect()
    }

    fn misrouted(got: &[Vec<u16>]) -> usize {
        let wrong = |(column, flows): (usize, &Vec<u16>)| {
            let own = |flow: u16| usize::from(flow) == column + 1;
            flows.iter().filter(|&&flow| (1..=COLUMNS).contains(&flow) && !own(flow)).count()
        };
        got.iter().enumerate().map(wrong).sum()
    }

    #[test]
    fn a_flow_leads_to_its_column_and_a_misroute_is_seen() {
        for address in FAMILIES {
            let address = address.parse().unwrap();
            let datagrams: Vec<_> = (1..=COLUMNS).cycle().take(100).map(datagram).collect();
            let sockets = bind_columns(address, COLUMNS, Sizes::default()).unwrap();
            send(&sockets[0], &datagrams);
            let got = flows(&sockets);
            assert_eq!(misrouted(&got), 0, "{got:?}");
            assert!(got.iter().all(|flows| flows.len() == 20), "{got:?}");
            // The planted fault: a program without the subtraction selects the next column.
            let mut planted = PROGRAM;
            planted[3].k = 0;
            let sockets = bind_steered(address, COLUMNS, Sizes::default(), &planted).unwrap();
            send(&sockets[0], &datagrams);
            assert!(misrouted(&flows(&sockets)) >= 80);
        }
    }

    #[test]
    fn what_names_no_column_is_spread_over_all() {
        for address in FAMILIES {
            let sockets = bind_columns(address.parse().unwrap(), COLUMNS, Sizes::default());
            let sockets = sockets.unwrap();
            let short = datagram(3)[..7].to_vec();
            for nobodys in [datagram(0), datagram(COLUMNS + 1), datagram(u16::MAX), short, vec![]] {
                send(&sockets[0], &vec![nobodys.clone(); 200]);
                let got = flows(&sockets);
                let counts: Vec<usize> = got.iter().map(Vec::len).collect();
                assert_eq!(counts.iter().sum::<usize>(), 200);
                assert!(counts.iter().all(|&count| count > 0), "{counts:?} of {nobodys:?}");
            }
        }
    }

    #[test]
    fn a_burst_goes_where_its_first_datagram_says_and_so_ends_where_the_flow_changes() {
        let sockets = bind_columns(FAMILIES[0].parse().unwrap(), 2, Sizes::default()).unwrap();
        let client = Datagrams::connect(sockets[0].address().unwrap(), Sizes::default()).unwrap();
        let (calls, mut outbox) = (Calls::default(), Outbox::new(3, 3, true));
        let datagrams = [2, 1, 1].map(datagram);
        let mut batch = outbox.open();
        assert!(datagrams.iter().all(|datagram| batch.add(None, b"", [&datagram[..]])));
        assert_eq!(batch.post(&client, &calls).sent, 3);
        assert_eq!(flows(&sockets), [vec![], vec![2, 1, 1]]);
        let mut batch = outbox.open();
        for (number, datagram) in datagrams.iter().enumerate() {
            if number == 1 {
                batch.begin_run();
            }
            assert!(batch.add(None, b"", [&datagram[..]]));
        }
        let before = calls.writes.get();
        assert_eq!(batch.post(&client, &calls).sent, 3);
        assert_eq!(calls.writes.get() - before, 1);
        assert_eq!(flows(&sockets), [vec![1, 1], vec![2]]);
    }

    #[test]
    fn a_port_that_somebody_has_is_refused_even_if_it_is_shared() {
        let address = FAMILIES[0].parse().unwrap();
        let sockets = bind_columns(address, 2, Sizes::default()).unwrap();
        let taken = sockets[0].address().unwrap();
        for columns in [1, 3] {
            let kind = bind_columns(taken, columns, Sizes::default()).map_err(|error| error.kind());
            assert_eq!(kind.err(), Some(io::ErrorKind::AddrInUse));
        }
        assert_eq!(bind_columns(address, 1, Sizes::default()).unwrap().len(), 1);
    }

    #[test]
    fn each_column_has_a_port_of_its_own_and_all_follow_the_first() {
        for address in FAMILIES {
            let sockets = bind_ports(address.parse().unwrap(), 3, Sizes::default()).unwrap();
            let ports = sockets.iter().map(|socket| socket.address().unwrap().port());
            let ports: Vec<u16> = ports.collect();
            assert_eq!(ports, [ports[0], ports[0] + 1, ports[0] + 2]);
            send(&sockets[1], &[datagram(1)]);
            assert_eq!(flows(&sockets), [vec![], vec![1], vec![]]);
            let taken = sockets[1].address().unwrap();
            let kind = bind_ports(taken, 1, Sizes::default()).map_err(|error| error.kind());
            assert_eq!(kind.err(), Some(io::ErrorKind::AddrInUse));
            let last = SocketAddr::new(taken.ip(), u16::MAX);
            assert!(bind_ports(last, 2, Sizes::default()).is_err());
        }
    }
}
