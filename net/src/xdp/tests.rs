//! Tests of ports: an echo server at one end of a link, sockets of the kernel at the other end.
//!
//! Where: in separate network namespaces, which need root.
//! Invariant: a client gets back what it sent, and no chunk is lost.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory::sync::{AtomicBool, Ordering};
use testing::namespace::{Namespace, Veth, WIRE, pair};

use super::*;
use crate::{Calls, Datagrams, Epoll, Interest, Sizes, Timeout};

const PORT: u16 = 11_211;
pub(super) const LIMIT: Duration = Duration::from_secs(20);
const UNSPECIFIED: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)];

/// Makes options to take UDP packets to `PORT` at all addresses of one end of the link.
pub(super) fn wanted(mode: Mode) -> OpenOptions<'static> {
    OpenOptions {
        interface: WIRE,
        queues: None,
        addresses: &UNSPECIFIED,
        ports: PORT..=PORT,
        allow: &[],
        chunks: CHUNKS_MIN,
        ports_max: usize::MAX,
        memory_bytes_max: usize::MAX,
        mode,
        values: None,
    }
}

fn open_on(end: &Namespace, wanted: &OpenOptions<'_>) -> Opened {
    end.on(|| open(wanted)).unwrap_or_else(|refused| panic!("{refused}"))
}

pub(super) fn echo(port: &mut Port, calls: &Calls) -> usize {
    let received = port.inbox.receive(calls);
    for datagram in port.inbox.datagrams() {
        assert!(port.outbox.add(datagram.peer, b"", [datagram.bytes]), "room for a batch");
    }
    port.inbox.release();
    let tally = port.outbox.post_or_drop(calls);
    assert_eq!((tally.sent, tally.refused, tally.too_long), (received.datagrams, 0, 0));
    received.datagrams
}

pub(super) fn assert_all_chunks(port: &Port) {
    let Chunks { all, lent, held, free, sent, .. } = port.chunks();
    assert_eq!(lent + held + free + sent, all, "{:?}", port.chunks());
    assert_eq!(port.inbox.strays() + port.outbox.strays(), 0);
}

pub(super) fn client(end: &Namespace, to: impl Into<IpAddr>) -> UdpSocket {
    let to: IpAddr = to.into();
    let from = if to.is_ipv4() { UNSPECIFIED[0] } else { UNSPECIFIED[1] };
    let socket = end.on(|| UdpSocket::bind((from, 0))).unwrap();
    socket.connect((to, PORT)).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

pub(super) fn await_that(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "the condition never held");
        std::thread::yield_now();
    }
}

pub(super) fn serve(ports: &mut [Port], count: usize) {
    let (calls, deadline) = (Calls::default(), Instant::now() + LIMIT);
    let mut served = 0;
    while served < count {
        served += ports.iter_mut().map(|port| echo(port, &calls)).sum::<usize>();
        assert!(Instant::now() < deadline, "{served} of {count} have come");
        std::thread::yield_now();
    }
    assert_eq!(served, count);
}

pub(super) fn answer(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match socket.recv(&mut buffer) {
            // A signal may interrupt a receive that has a timeout.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            bytes => return buffer[..bytes.unwrap()].to_vec(),
        }
    }
}

#[test]
fn what_the_kernels_sockets_send_is_answered_in_both_modes_over_both_families() {
    for mode in [Mode::Native, Mode::Generic] {
        for mtu in [1280, 1500] {
            let Some([near, far]) = pair(Veth { queues: 1, mtu }) else { return };
            let Opened { mut ports, watch, .. } = open_on(&far, &wanted(mode));
            let facts = watch.facts();
            assert_eq!(facts.is_native, mode == Mode::Native);
            assert_eq!((facts.mtu, facts.queues, facts.is_long), (mtu, 1, false));
            assert_eq!(watch.health(), Some(Health::Up { mtu }));
            assert_eq!(facts.addresses, [IpAddr::from(far.v4), IpAddr::from(far.v6)]);
            let clients: [(UdpSocket, usize); 2] =
                [(client(&near, far.v4), 28), (client(&near, far.v6), 48)];
            for (client, header_bytes) in &clients {
                for bytes in [0, 1, 9, 1000, mtu as usize - header_bytes] {
                    let text: Vec<u8> = (0..=255).cycle().take(bytes).collect();
                    client.send(&text).unwrap();
                    serve(&mut ports, 1);
                    assert!(answer(client) == text, "{bytes} bytes, MTU {mtu}, {mode:?}");
                }
            }
            assert_all_chunks(&ports[0]);
            assert_eq!(ports[0].meter().read(), Some(Statistics::default()));
        }
    }
}

#[test]
fn each_queue_has_a_port_and_what_comes_there_is_answered_there() {
    const QUEUES: u32 = 4;
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth { queues: QUEUES, mtu: 1500 }) else { return };
        let Opened { mut ports, watch, .. } = open_on(&far, &wanted(mode));
        assert_eq!(ports.iter().map(Port::queue).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(watch.facts().memory_bytes, 4 * 256 * 2048);
        let clients: Vec<UdpSocket> = (0..40).map(|_| client(&near, far.v4)).collect();
        clients.iter().for_each(|client| assert_eq!(client.send(b"hello").unwrap(), 5));
        let (calls, mut served) = (Calls::default(), [0; QUEUES as usize]);
        while served.iter().sum::<usize>() < clients.len() {
            for (port, served) in ports.iter_mut().zip(&mut served) {
                *served += echo(port, &calls);
            }
        }
        clients.iter().for_each(|client| assert_eq!(answer(client), b"hello"));
        // The chance that 40 senders use only two of four queues is less than one in a billion.
        let used = served.iter().filter(|served| **served > 0).count();
        assert!(used >= 3, "{served:?}, {mode:?}");
        ports.iter().for_each(assert_all_chunks);
    }
}

#[test]
fn checksums_may_be_left_to_a_card_that_is_not_there() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, .. } = open_on(&far, &wanted(Mode::Any));
    for is_left in [false, true] {
        near.on(|| crate::nic::set_transmit_checksums(WIRE, is_left));
        for to in [IpAddr::from(far.v4), far.v6.into()] {
            let client = client(&near, to);
            client.send(b"sum me up").unwrap();
            serve(&mut ports, 1);
            assert_eq!(answer(&client), b"sum me up");
        }
    }
    ports[0].inbox.batch.sums = crate::wire::Sums::Whole;
    client(&near, far.v4).send(b"sum me up").unwrap();
    await_that(|| {
        assert_eq!(echo(&mut ports[0], &Calls::default()), 0);
        ports[0].inbox.refused(crate::wire::Rejected::Checksum) == 1
    });
}

#[test]
fn without_chunks_packets_are_lost_and_told_and_with_chunks_they_come_again() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let Opened { mut ports, .. } = open_on(&far, &wanted(mode));
        let (port, calls) = (&mut ports[0], Calls::default());
        let client = client(&near, far.v4);
        let sent = |count: u8| {
            (0..count).for_each(|number| assert_eq!(client.send(&[number]).unwrap(), 1))
        };
        let meter = port.meter();
        let statistics = || meter.read().unwrap();
        // The kernel has 128 chunks for receiving, so the last 10 of these datagrams are dropped.
        sent(128 + 10);
        await_that(|| statistics().dropped == 10);
        let Statistics { no_chunk, ring_full, invalid, .. } = statistics();
        assert!(no_chunk > 0 && (ring_full, invalid) == (0, 0), "{:?}, {mode:?}", statistics());
        for first in [0, 64] {
            let received = port.inbox.receive(&calls);
            assert_eq!((received.datagrams, received.is_drained), (64, first == 64));
            assert_eq!(
                port.chunks(),
                Chunks { all: 256, lent: 64, held: 64, free: 128, sent: 0, values: 0 }
            );
            let shown: Vec<&[u8]> = port.inbox.datagrams().map(|one| one.bytes).collect();
            assert!(shown.iter().zip(first..).all(|(one, number)| one[..] == [number]));
        }
        port.inbox.release();
        assert_eq!(
            port.chunks(),
            Chunks { all: 256, lent: 128, held: 0, free: 128, sent: 0, values: 0 }
        );
        assert_eq!(port.inbox.datagrams().count(), 0);
        client.send(b"again").unwrap();
        serve(&mut ports, 1);
        assert_eq!(answer(&client), b"again");
        assert_all_chunks(&ports[0]);
    }
}

#[test]
fn letters_find_room_again_when_those_before_them_have_left() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, .. } = open_on(&far, &wanted(Mode::Any));
    let (port, calls) = (&mut ports[0], Calls::default());
    let client = client(&near, far.v6);
    client.send(b"?").unwrap();
    await_that(|| port.inbox.has_input());
    assert_eq!(port.inbox.receive(&calls).datagrams, 1);
    assert!(!port.inbox.has_input());
    let peer = *port.inbox.datagrams().next().unwrap().peer;
    assert_eq!(peer.address(), Some((near.v6, client.local_addr().unwrap().port()).into()));
    assert_eq!(peer.destination(), (far.v6, PORT).into());
    assert_eq!(port.outbox.payload_bytes_max(&peer), 1500 - 48);
    for round in 0..5_u8 {
        for number in 0..128 {
            assert!(port.outbox.add(&peer, &[round], [&[number][..], b"", b"!"]));
        }
        assert!(!port.outbox.add(&peer, b"", [&b"one too many"[..]]));
        assert_eq!(port.outbox.in_transmission(), 128);
        let before = calls.writes.get();
        let tally = port.outbox.post_or_drop(&calls);
        assert_eq!((tally.sent, tally.full, tally.too_long, tally.refused), (128, 0, 0, 0));
        // The post makes one call if the kernel lets us set the number of packets per call, and
        // otherwise one call per 32 packets.
        let writes = calls.writes.get() - before;
        assert!(writes <= 5, "{writes} calls");
        for number in 0..128 {
            assert_eq!(answer(&client), [round, number, b'!']);
        }
        assert_eq!((port.outbox.waiting(), port.outbox.in_transmission()), (0, 0));
    }
    assert!(port.outbox.add(&peer, b"12345678", [&[0; 1445][..]]));
    assert!(port.outbox.add(&peer, b"12345678", [&[7; 1444][..]]));
    let tally = port.outbox.post_or_drop(&calls);
    assert_eq!((tally.sent, tally.too_long), (1, 1));
    assert_eq!(answer(&client).len(), 1452);
    assert_all_chunks(port);
}

#[test]
fn what_is_not_for_us_goes_to_the_kernel_and_all_of_it_when_the_ports_are_gone() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let bind = |port| far.on(|| UdpSocket::bind((far.v4, port)).unwrap());
    let (here, beside) = (bind(PORT), bind(PORT + 1));
    for socket in [&here, &beside] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    let Opened { mut ports, watch, .. } = open_on(&far, &wanted(Mode::Any));
    let client = client(&near, far.v4);
    let other = near.on(|| UdpSocket::bind((near.v4, 0)).unwrap());
    other.send_to(b"beside", (far.v4, PORT + 1)).unwrap();
    assert_eq!(answer(&beside), b"beside");
    client.send(b"one").unwrap();
    serve(&mut ports, 1);
    assert_eq!(watch.health(), Some(Health::Up { mtu: 1500 }));
    assert!(far.ip("link show wire").contains("xdp"));
    let meter = ports[0].meter();
    drop(ports);
    assert_eq!(meter.read(), None);
    // The kernel closes a socket with a delay.
    here.set_nonblocking(true).unwrap();
    let mut buffer = [0; 9];
    await_that(|| {
        client.send(b"two").unwrap();
        here.recv(&mut buffer).is_ok()
    });
    assert_eq!(&buffer[..3], b"two");
    await_that(|| watch.health() == Some(Health::Detached));
    assert!(!far.ip("link show wire").contains("xdp"));
}

#[test]
fn an_epoll_reports_what_comes_after_an_inbox_was_drained() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, .. } = open_on(&far, &wanted(Mode::Any));
    let (calls, client) = (Calls::default(), client(&near, far.v4));
    let mut epoll = Epoll::new(1).unwrap();
    epoll.add(&ports[0], 7, Interest::Read, &calls).unwrap();
    for count in [1, 3, 64, 5] {
        (0..count).for_each(|_| assert_eq!(client.send(b"wake").unwrap(), 4));
        let mut received = 0;
        while received < count {
            // A signal may end the wait.
            await_that(|| epoll.wait(Timeout::Within(LIMIT), &calls).unwrap().len() == 1);
            loop {
                let result = ports[0].inbox.receive(&calls);
                received += result.datagrams;
                ports[0].inbox.release();
                if result.is_drained {
                    break;
                }
            }
        }
        assert_eq!(received, count);
    }
}

#[test]
fn frames_longer_than_a_chunk_are_joined() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth { queues: 1, mtu: 9000 }) else { return };
        let wanted = OpenOptions { chunks: 512, ..wanted(mode) };
        let Opened { mut ports, watch, .. } = open_on(&far, &wanted);
        assert!(watch.facts().is_long);
        let client = client(&near, far.v4);
        // The kernel keeps only a few packets for a neighbour that it has not resolved yet.
        client.send(b"who are you").unwrap();
        serve(&mut ports, 1);
        let (port, calls) = (&mut ports[0], Calls::default());
        let text: Vec<u8> = (0..=250).cycle().take(9000 - 28).collect();
        // Sends more long frames than one receive joins, with short frames among them.
        let (mut received, mut sent) = (0, 0);
        while sent < 50 {
            client.send(if sent % 5 == 4 { b"short" } else { &text }).unwrap();
            sent += 1;
        }
        let deadline = Instant::now() + LIMIT;
        while received < sent {
            let result = port.inbox.receive(&calls);
            assert_eq!(result.cut, 0);
            assert!(result.datagrams > 0 || result.is_drained);
            for datagram in port.inbox.datagrams() {
                let expected = if received % 5 == 4 { b"short" } else { &text[..] };
                assert!(datagram.bytes == expected, "number {received}, {mode:?}");
                received += 1;
            }
            assert!(Instant::now() < deadline, "{received} of {sent}, {mode:?}");
        }
        assert_all_chunks(port);
    }
}

/// The sending kernel leaves the splitting of bursts to a network card, but no card is on this
/// link. In generic mode, a burst therefore arrives as one packet.
#[test]
fn bursts_come_cut_to_a_driver_and_are_dropped_elsewhere_if_they_are_longer_than_packets() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let Opened { mut ports, .. } = open_on(&far, &wanted(mode));
        let (port, calls) = (&mut ports[0], Calls::default());
        let (to, sizes) = ((far.v4, PORT).into(), Sizes::default());
        let client = near.on(|| Datagrams::connect(to, sizes)).unwrap();
        let mut outbox = crate::Outbox::new(64, 64, true);
        let mut send = |bytes: usize, count: usize| {
            let text = vec![7; bytes];
            let mut batch = outbox.open();
            (0..count).for_each(|_| assert!(batch.add(None, b"", [&text[..]])));
            assert_eq!(batch.post(&client, &calls).sent, count);
        };
        let meter = port.meter();
        let (mut lengths, mut cut) = (Vec::new(), 0);
        let mut receive_until = |holds: &dyn Fn(&[usize], usize) -> bool| {
            await_that(|| {
                cut += port.inbox.receive(&calls).cut;
                lengths.extend(port.inbox.datagrams().map(|one| one.bytes.len()));
                holds(&lengths, cut)
            });
        };
        send(400, 4); // fits a chunk, but exceeds the MTU
        send(1000, 20); // fits no chunk
        send(9, 1);
        receive_until(&|lengths, _| lengths.last() == Some(&9));
        let dropped = meter.read().unwrap().dropped;
        match mode {
            Mode::Native => assert_eq!((lengths.len(), cut, dropped), (25, 0, 0)),
            _ => assert_eq!((lengths.len(), cut, dropped), (1, 1, 1)),
        }
    }
}

#[test]
fn frames_made_by_hand_are_dropped_for_their_reasons_and_never_answered() {
    use crate::wire::{Ends, Ips, Mac, Macs, Ports, Rejected};
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, .. } = open_on(&far, &wanted(Mode::Any));
    let (port, calls) = (&mut ports[0], Calls::default());
    let wire = near.frames();
    let send = |frame: &[u8]| wire.send(frame);
    let frame = |ips, payload: &[u8]| {
        let macs = Macs { from: Mac(near.mac), to: Mac(far.mac) };
        let ends = Ends { macs, ips, ports: Ports { from: 40_000, to: PORT } };
        let mut frame = [&vec![0; ends.header_bytes()][..], payload].concat();
        assert!(crate::wire::write(&mut frame, &ends));
        frame
    };
    let [v4_ends, own_ends] = [near.v4, far.v4].map(|from| Ips::V4 { from, to: far.v4 });
    let v6_ends = Ips::V6 { from: near.v6, to: far.v6 };
    let (v4, v6) = (frame(v4_ends, b"get a"), frame(v6_ends, b"get a"));
    let own = frame(own_ends, b"get a");
    // A link that has just been switched on may lose packets.
    await_that(|| {
        send(&v4);
        port.inbox.receive(&calls).datagrams > 0
    });
    let with = |frame: &[u8], at: usize, bytes: &[u8]| {
        let mut frame = frame.to_vec();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let cases = [
        (with(&v4, 24, &[1, 1]), Rejected::HeaderChecksum),
        (with(&v4, 46, b"b"), Rejected::Checksum),
        (with(&v6, 60, &[0, 0]), Rejected::Checksum),
        (with(&v6, 18, &[0, 99]), Rejected::Length),
        (with(&v6, 58, &[0, 7]), Rejected::Length),
        (with(&v4, 6, &[1, 0, 0x5e]), Rejected::Group),
        (own, Rejected::Sender),
    ];
    let mut expected = [0; Rejected::ALL.len()];
    for (frame, reason) in cases {
        send(&frame);
        expected[reason as usize] += 1;
    }
    // When the last frame arrives, the kernel has passed all earlier frames to its stack.
    let tag = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    for frame in [tag(&v4), with(&v4, 20, &[0x20, 0]), with(&v6, 20, &[44]), v4[..30].to_vec()] {
        send(&frame);
    }
    send(&frame(v6_ends, b"the last"));
    let mut last = None;
    await_that(|| {
        assert_eq!(port.inbox.receive(&calls).cut, 0);
        last = port.inbox.datagrams().last().map(|one| (one.bytes.to_vec(), one.peer.address()));
        last.as_ref().is_some_and(|(bytes, _)| bytes == b"the last")
    });
    assert_eq!(last.unwrap().1, Some((near.v6, 40_000).into()));
    assert_eq!(Rejected::ALL.map(|reason| port.inbox.refused(reason)), expected);
    assert_eq!(port.outbox.in_transmission(), 0);
}

/// A column that sleeps without `release` holds datagrams, but the kernel must still have chunks.
#[test]
fn the_kernel_has_chunks_however_many_datagrams_are_held() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let Opened { mut ports, .. } = open_on(&far, &wanted(Mode::Any));
    let (port, calls, client) = (&mut ports[0], Calls::default(), client(&near, far.v4));
    for _ in 0..5 {
        (0..64).for_each(|_| assert_eq!(client.send(b"held").unwrap(), 4));
        let mut held = 0;
        await_that(|| {
            held += port.inbox.receive(&calls).datagrams;
            held == 64
        });
    }
    assert_eq!(port.meter().read(), Some(Statistics::default()));
}

/// Until `is_over`, steals datagrams and answers with their payload. Returns their number.
fn steal_until(queue: &Arc<Queue>, is_over: &AtomicBool) -> usize {
    let (calls, mut thief, mut stolen) = (Calls::default(), StolenBatch::new(queue), 0);
    // Relaxed: the flag orders no other memory.
    while !is_over.load(Ordering::Relaxed) {
        stolen += thief.steal(Arc::clone(queue), &calls).datagrams;
        if let Some((datagrams, from)) = thief.halves() {
            let mut batch = SendBatch::of(from);
            for one in datagrams {
                batch.add(one.peer, b"", [one.bytes]);
            }
            batch.post_or_drop(&calls);
        }
        thief.release();
        std::thread::yield_now();
    }
    stolen
}

#[test]
fn chunks_are_all_at_home_after_starvation_and_the_loss_of_a_link_whoever_receives_and_answers() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let Opened { mut ports, .. } = open_on(&far, &wanted(mode));
        let (port, calls, client) = (&mut ports[0], Calls::default(), client(&near, far.v4));
        client.set_nonblocking(true).unwrap();
        let (queue, meter, is_over) =
            (Arc::clone(port.inbox.queue()), port.meter(), AtomicBool::new(false));
        let flood = |count: usize| (0..count).for_each(|_| drop(client.send(b"flood")));
        let answer_some = |port: &mut Port, count: usize| {
            let mut answered = 0;
            await_that(|| {
                // Like `echo`, except that `add` may fail for lack of room.
                let _ = port.inbox.receive(&calls);
                for one in port.inbox.datagrams() {
                    port.outbox.add(one.peer, b"", [one.bytes]);
                }
                port.outbox.post_or_drop(&calls);
                let _ = client.send(b"one");
                answered += usize::from(client.recv(&mut [0; 9]).is_ok());
                answered >= count
            });
        };
        let stolen = std::thread::scope(|scope| {
            let thief = scope.spawn(|| steal_until(&queue, &is_over));
            for _ in 0..5 {
                // No thread can receive until all chunks have a frame and more frames have arrived.
                let dropped = meter.read().unwrap().dropped;
                let rx = queue.rx();
                flood(200);
                await_that(|| meter.read().unwrap().dropped > dropped);
                drop(rx);
                answer_some(port, 300);
                // Answers sent while the link is down wait for the link, or are lost.
                let rx = queue.rx();
                flood(100);
                far.ip(&format!("link set {WIRE} down"));
                drop(rx);
                far.ip(&format!("link set {WIRE} up"));
                answer_some(port, 300);
            }
            is_over.store(true, Ordering::Relaxed); // the flag orders no other memory
            thief.join().unwrap()
        });
        assert!(stolen > 0, "{mode:?}");
        port.inbox.release();
        await_that(|| {
            port.outbox.post_or_drop(&calls);
            port.outbox.in_transmission() == 0
        });
        let Chunks { all, lent, held, free, sent, .. } = port.chunks();
        assert_eq!((all, lent, held, free, sent), (256, 128, 0, 128, 0), "{mode:?}");
        assert_all_chunks(port);
        assert_eq!(meter.read().unwrap().invalid, 0);
    }
}
