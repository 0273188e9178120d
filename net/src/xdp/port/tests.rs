//! Tests of a port. The test acts as the kernel, and sometimes names chunks that were not lent.
//!
//! Where: the rings are in memory. The tests need no AF_XDP socket and no privilege.
//! Invariant: whatever the kernel writes to the rings, only memory lent to the kernel is accessed,
//! and no chunk is lost.
#![allow(unsafe_code, reason = "slices of chunks")]

mod kept;
#[cfg(shuttle)]
mod under_shuttle;
mod values;

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::*;
use crate::Calls;
use crate::wire::{Ends, Ips, Mac, Macs, Ports, Rejected};
use crate::xdp::ring::tests::Kernel;
use crate::xdp::umem::Span;
use crate::xdp::{Peer, Queue, SendBatch, StolenBatch};
use memory::arena::Arena;

const CHUNK_BYTES: u64 = 2048;
const IN_PLACE_MIN: usize = 100;

struct Rig {
    port: Port,
    receive: ProducerRing<XdpDesc>,
    fill: ConsumerRing<u64>,
    transmit: ConsumerRing<XdpDesc>,
    completion: ProducerRing<u64>,
}

/// Makes a `Rig` (a port, and the kernel's ends of its rings) with four chunks to receive and four
/// chunks to send. If `is_long` is true, a frame may take several chunks.
fn rig(frame_bytes_max: usize, is_long: bool) -> Rig {
    rig_of(8, frame_bytes_max, is_long)
}

fn rig_of(chunks: u32, frame_bytes_max: usize, is_long: bool) -> Rig {
    rig_by(no_socket(), (0, chunks, 0), (frame_bytes_max, is_long))
}

fn no_socket() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// Makes a rig whose system calls go to `fd`. The port's chunks come after `before` other chunks,
/// and before `values` chunks for values, which are sent in place.
fn rig_by(fd: OwnedFd, (before, chunks, values): (u32, u32, u32), frame: (usize, bool)) -> Rig {
    let umem = Umem::new(Arc::new(Arena::new(before + chunks, values, 2048).unwrap()));
    rig_in(fd, umem, before..before + chunks, frame)
}

/// Like `rig_by`, but with the memory `umem`, in which the port has the chunks `its`.
fn rig_in(fd: OwnedFd, umem: Umem, its: std::ops::Range<u32>, frame: (usize, bool)) -> Rig {
    let arena = Arc::clone(umem.arena());
    let (chunks, values) = (its.end - its.start, arena.chunks() - arena.ring_chunks());
    let rings = [(); 4].map(|()| Kernel::new());
    let (half, has_values) = (chunks / 2, values > 0);
    let send_entries = if has_values { half * PARTS_PER_CHUNK } else { half };
    let (fill_end, fill) = rings[0].ends(half);
    let (receive, receive_end) = rings[1].ends(half);
    let (transmit_end, transmit) = rings[2].ends(send_entries);
    let (completion, completion_end) = rings[3].ends(send_entries);
    let link = Arc::new(fd.try_clone().unwrap());
    let socket = Arc::new(Socket { fd, umem, in_flight: InFlight::new(&arena, has_values) });
    let (bytes_max, are_long) = frame;
    let frames = Frames { bytes_max, are_long, sums: Sums::Whole };
    let (incoming, outgoing) = ((receive_end, fill_end), (transmit_end, completion_end));
    let queue = Arc::new(Queue::new(Arc::clone(&socket), incoming, outgoing, its, frames));
    if has_values {
        queue.tx().send_in_place(IN_PLACE_MIN);
    }
    let port = Port {
        inbox: Inbox::new(Arc::clone(&queue)),
        outbox: Outbox::new(queue),
        socket,
        _link: link,
        queue: 0,
        chunks: chunks as usize,
        is_zero_copy: false,
        sends_in_place: has_values,
    };
    Rig { port, receive, fill, transmit, completion }
}

fn ends() -> Ends {
    let macs = Macs { from: Mac([2, 0, 0, 0, 0, 1]), to: Mac([2, 0, 0, 0, 0, 2]) };
    let ips = Ips::V4 { from: [192, 0, 2, 1].into(), to: [192, 0, 2, 2].into() };
    Ends { macs, ips, ports: Ports { from: 1, to: 2 } }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; crate::wire::HEADERS_BYTES_V4][..], payload].concat();
    assert!(crate::wire::write(&mut frame, &ends()));
    frame
}

impl Rig {
    fn put(&self, chunk: u32, bytes: &[u8]) -> XdpDesc {
        // SAFETY: the chunk is lent to the kernel, and this test acts as the kernel.
        let room = unsafe { self.port.socket.umem.write(chunk) };
        room[256..256 + bytes.len()].copy_from_slice(bytes);
        let len = u32::try_from(bytes.len()).unwrap();
        let addr = u64::from(chunk) * CHUNK_BYTES + 256;
        XdpDesc { addr, len, options: XdpDescOptions::empty() }
    }

    fn send(&mut self, descriptors: &[XdpDesc]) {
        descriptors.iter().for_each(|descriptor| assert!(self.receive.push(*descriptor)));
        self.receive.publish();
    }

    fn got(&mut self) -> Vec<Vec<u8>> {
        let _ = self.port.inbox.receive(&Calls::default());
        self.port.inbox.datagrams().map(|one| one.bytes.to_vec()).collect()
    }

    fn lent(&mut self) -> Vec<u64> {
        let count = self.fill.look();
        let mut lent: Vec<u64> = (0..count).map(|ahead| self.fill.peek(ahead)).collect();
        self.fill.release(count);
        lent.sort_unstable();
        lent
    }

    fn is_accounted_for(&self) -> bool {
        let Chunks { all, lent, held, free, sent, .. } = self.port.chunks();
        (lent + held, free + sent, all) == (4, 4, 8)
    }
}

#[test]
fn descriptors_that_name_what_was_not_lent_are_strays() {
    let mut rig = rig(1514, false);
    assert_eq!(rig.lent(), [0, 2048, 4096, 6144]);
    let good = rig.put(1, &frame(b"good"));
    let strays = [
        XdpDesc { addr: CHUNK_BYTES * 8, ..good },
        XdpDesc { addr: u64::MAX, ..good },
        XdpDesc { addr: CHUNK_BYTES * 5, ..good }, // the outbox's
        XdpDesc { len: 1793, ..good },             // beyond the chunk
        XdpDesc { len: u32::MAX, ..good },
        good, // twice
    ];
    rig.send(&[good, strays[0], strays[1]]);
    assert_eq!(rig.got(), [b"good"]);
    assert_eq!(rig.port.chunks(), Chunks { all: 8, lent: 3, held: 1, free: 4, sent: 0, values: 0 });
    rig.send(&strays[2..5]);
    assert!(rig.got().is_empty());
    let again = rig.put(1, &frame(b"again"));
    rig.send(&[again, again, XdpDesc { len: 3, ..again }]);
    assert_eq!(rig.got(), [b"again"], "a chunk is received once");
    assert_eq!(rig.port.inbox.strays(), 7);
    rig.port.inbox.release();
    assert!(rig.is_accounted_for());
    assert_eq!(rig.lent(), [2048, 2048], "only the released chunk is lent again");
    let short = rig.put(0, &frame(b"short")[..20]);
    rig.send(&[short]);
    assert!(rig.got().is_empty() && rig.port.inbox.refused(Rejected::Short) == 1);
    assert!(rig.is_accounted_for());
}

#[test]
fn frames_in_pieces_are_joined_if_they_come_whole_and_are_no_longer_than_frames() {
    let mut rig = rig(3000, true);
    assert_eq!(rig.lent().len(), 4);
    let text: Vec<u8> = (0..=255).cycle().take(2900).collect();
    let whole = frame(&text);
    let more = |descriptor| XdpDesc { options: XdpDescOptions::XDP_PKT_CONTD, ..descriptor };
    let (first, rest) = whole.split_at(1792);
    let (first, rest) = (more(rig.put(0, first)), rig.put(1, rest));
    rig.send(&[first]);
    let received = rig.port.inbox.receive(&Calls::default());
    assert_eq!((received.datagrams, received.is_drained), (0, true));
    rig.send(&[rest]);
    assert_eq!(rig.got(), [text]);
    rig.port.inbox.release();
    assert_eq!(rig.lent(), [0, 2048]);
    // One frame is a byte too long, and one frame has a piece at an invalid address.
    let long = XdpDesc { len: 3001 - 1792, ..rest };
    rig.send(&[first, long]);
    let received = rig.port.inbox.receive(&Calls::default());
    assert_eq!((received.datagrams, received.cut, received.is_drained), (0, 1, true));
    rig.port.inbox.release();
    assert_eq!(rig.lent(), [0, 2048]);
    rig.send(&[first, XdpDesc { addr: u64::MAX, ..rest }]);
    assert!(rig.got().is_empty());
    assert_eq!(rig.port.inbox.strays(), 1);
    rig.port.inbox.release();
    assert!(rig.is_accounted_for() && rig.port.chunks().lent == 4);
}

#[test]
fn a_piece_where_no_frame_comes_in_pieces_is_dropped_and_keeps_nobody_waiting() {
    let mut rig = rig(1514, false);
    let piece = rig.put(0, &frame(b"piece"));
    let more = XdpDesc { options: XdpDescOptions::XDP_PKT_CONTD, ..piece };
    let other = rig.put(1, &frame(b"other"));
    let next = rig.put(2, &frame(b"next"));
    rig.send(&[more, other, next]);
    let received = rig.port.inbox.receive(&Calls::default());
    assert_eq!((received.datagrams, received.cut, received.is_drained), (1, 1, true));
    assert_eq!(rig.port.inbox.datagrams().map(|one| one.bytes).collect::<Vec<_>>(), [b"next"]);
}

#[test]
fn a_flood_of_what_is_not_ours_keeps_nobody_from_other_work() {
    let mut rig = rig_of(1024, 1514, false);
    let calls = Calls::default();
    assert_eq!(rig.lent().len(), 512);
    let flood: Vec<XdpDesc> = (0..500).map(|chunk| rig.put(chunk, b"no frame")).collect();
    let last = rig.put(500, &frame(b"last"));
    rig.send(&flood);
    rig.send(&[last]);
    let received = rig.port.inbox.receive(&calls);
    assert_eq!((received.datagrams, received.is_drained), (0, false));
    assert_eq!(rig.port.inbox.refused(Rejected::Short), 256);
    let received = rig.port.inbox.receive(&calls);
    assert_eq!((received.datagrams, received.is_drained), (1, true));
    assert_eq!(rig.port.inbox.refused(Rejected::Short), 500);
}

#[test]
fn a_driver_that_ran_out_of_chunks_is_woken_when_it_gets_some() {
    let (mut rig, calls) = (rig(1514, false), Calls::default());
    assert_eq!(rig.lent().len(), 4);
    let _ = rig.port.inbox.receive(&calls);
    assert_eq!(calls.reads.get(), 0);
    rig.fill.need_wakeup(true);
    let datagrams = [0, 1, 2, 3].map(|chunk| rig.put(chunk, &frame(b"last")));
    rig.send(&datagrams);
    assert_eq!(rig.port.inbox.receive(&calls).datagrams, 4);
    assert_eq!(calls.reads.get(), 0, "the driver has chunks and is not woken");
    rig.port.inbox.release();
    rig.fill.need_wakeup(false);
    let _ = rig.port.inbox.receive(&calls);
    assert_eq!(calls.reads.get(), 1);
}

#[test]
fn the_driver_is_asked_for_copies_unless_it_may_use_our_memory_itself() {
    for [may_zero_copy, is_parted] in [[false, false], [false, true], [true, false], [true, true]] {
        let plan = Plan {
            interface: 1,
            queue: 0,
            mtu: 1500,
            chunks: 0..8,
            may_zero_copy,
            sums: Sums::Whole,
            kernel_sums: false,
            in_place_min: None,
        };
        let flags = plan.flags(is_parted);
        assert!(flags.contains(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP));
        assert_eq!(flags.contains(SocketAddrXdpFlags::XDP_COPY), !may_zero_copy);
        assert_eq!(flags.contains(SocketAddrXdpFlags::XDP_USE_SG), is_parted);
    }
}

/// The test acts like a kernel before 6.17, which takes 32 datagrams and returns `EAGAIN`, but
/// updates the ring's consumer count only in the next call.
#[test]
fn a_kernel_that_does_not_tell_what_it_took_is_called_until_it_has_taken_all() {
    let (full, _peer) = UnixDatagram::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.send(b"").is_ok() {}
    let mut rig = rig_by(full.into(), (0, 256, 0), (1514, false));
    let calls = Calls::default();
    let mut post = |datagrams: usize| {
        let peer = Peer::at(ends());
        (0..datagrams).for_each(|_| assert!(rig.port.outbox.add(&peer, b"", [])));
        rig.transmit.need_wakeup(true);
        let before = calls.writes.get();
        assert_eq!(rig.port.outbox.post_or_drop(&calls).sent, datagrams);
        rig.transmit.release(u32::try_from(datagrams).unwrap());
        calls.writes.get() - before
    };
    assert_eq!([0, 1, 31, 32, 64].map(&mut post), [0, 1, 1, 2, 3]);
    // If the kernel has no room, for any reason, the post does not call the kernel again.
    let mut rig = rig_of(256, 1514, false);
    (0..100).for_each(|_| assert!(rig.port.outbox.add(&Peer::at(ends()), b"", [])));
    rig.transmit.need_wakeup(true);
    let calls = Calls::default();
    rig.port.outbox.post_or_drop(&calls);
    assert_eq!((calls.writes.get(), rig.port.outbox.waiting()), (1, 100));
}

#[test]
fn completions_of_what_was_not_sent_are_strays_and_what_was_sent_is_valid() {
    let mut rig = rig(1514, false);
    let peer = Peer::at(ends());
    for text in [&b"a"[..], b"bc", b"def", b""] {
        assert!(rig.port.outbox.add(&peer, b"head", [text]));
    }
    assert!(!rig.port.outbox.add(&peer, b"", []), "five datagrams in four chunks");
    assert_eq!(rig.transmit.look(), 0, "nothing leaves before it is posted");
    rig.port.outbox.post_or_drop(&Calls::default());
    assert_eq!(rig.transmit.look(), 4);
    let mut sent = Vec::new();
    for ahead in 0..4 {
        let descriptor = rig.transmit.peek(ahead);
        assert!(descriptor.options.is_empty());
        let span = rig.port.socket.umem.span(descriptor.addr, descriptor.len).unwrap();
        assert_eq!((span.chunk, span.at), (4 + ahead, 0));
        // SAFETY: the chunk is in transmission, so it is the kernel's; the test acts as the kernel.
        let bytes = unsafe { rig.port.socket.umem.read(span) };
        let packet = crate::wire::read(bytes, Sums::Whole).unwrap();
        assert_eq!(packet.ends, ends());
        sent.push(bytes[crate::wire::HEADERS_BYTES_V4..].to_vec());
    }
    assert_eq!(sent, [&b"heada"[..], b"headbc", b"headdef", b"head"]);
    assert_eq!(rig.port.outbox.waiting(), 4);
    rig.transmit.release(4);
    assert_eq!((rig.port.outbox.waiting(), rig.port.outbox.in_transmission()), (0, 4));
    let complete = |rig: &mut Rig, addresses: &[u64]| {
        addresses.iter().for_each(|address| assert!(rig.completion.push(*address)));
        rig.completion.publish();
        rig.port.outbox.reap();
    };
    // The three strays name a chunk of the inbox, and twice no chunk at all. Then one of our chunks
    // completes twice, and another chunk completes with an address inside the chunk.
    complete(&mut rig, &[0, CHUNK_BYTES * 8, u64::MAX]);
    assert_eq!((rig.port.outbox.strays(), rig.port.outbox.in_transmission()), (3, 4));
    complete(&mut rig, &[CHUNK_BYTES * 5, CHUNK_BYTES * 5, CHUNK_BYTES * 7 + 9]);
    assert_eq!((rig.port.outbox.strays(), rig.port.outbox.in_transmission()), (4, 2));
    assert!(rig.is_accounted_for());
    assert!(rig.port.outbox.add(&peer, b"", []) && rig.port.outbox.add(&peer, b"", []));
    assert!(!rig.port.outbox.add(&peer, b"", []));
    assert!(rig.is_accounted_for());
}

#[test]
fn what_another_column_steals_is_copied_and_its_chunks_stay_at_home() {
    let mut victim = rig_of(64, 1514, false);
    assert_eq!(victim.lent().len(), 32);
    let texts: Vec<String> = (0..40).map(|number| format!("text {number}")).collect();
    let put = |rig: &mut Rig, chunks: std::ops::Range<u32>, first: usize| {
        let frames =
            chunks.zip(&texts[first..]).map(|(chunk, text)| (chunk, frame(text.as_bytes())));
        let all: Vec<XdpDesc> = frames.map(|(chunk, frame)| rig.put(chunk, &frame)).collect();
        rig.send(&all);
    };
    let (calls, queue) = (Calls::default(), Arc::clone(victim.port.inbox.queue()));
    let mut thief = StolenBatch::new(&queue);
    assert!(thief.halves().is_none());
    put(&mut victim, 0..32, 0);
    let received = thief.steal(Arc::clone(&queue), &calls);
    assert_eq!((received.datagrams, received.is_drained), (32, true));
    let stolen = |thief: &StolenBatch| -> Vec<Vec<u8>> {
        thief.halves().unwrap().0.map(|one| one.bytes.to_vec()).collect()
    };
    let first = stolen(&thief);
    assert!(first.iter().zip(&texts).all(|(bytes, text)| *bytes == text.as_bytes()));
    assert!(thief.halves().unwrap().0.all(|one| *one.peer == Peer::at(ends().reversed())));
    // The kernel has all chunks again, and overwrites some while the thief shows the old frames.
    assert_eq!(victim.lent().len(), 32);
    put(&mut victim, 0..8, 32);
    assert_eq!(stolen(&thief), first);
    let Chunks { lent, held, .. } = victim.port.chunks();
    assert_eq!((lent, held), (32, 0));
    assert_eq!(victim.got().len(), 8, "the datagrams that were not stolen");
    assert!(thief.release().is_some() && thief.halves().is_none());
    // While the owner has the queue locked, a thief does not wait.
    let rx = queue.rx();
    assert_eq!(thief.steal(Arc::clone(&queue), &calls).datagrams, 0);
    assert!(thief.halves().is_none());
    drop(rx);
    assert_eq!(thief.steal(Arc::clone(&queue), &calls).datagrams, 0, "no datagram waits");
    assert_eq!(victim.port.inbox.strays(), 0);
}

#[test]
fn what_a_thief_answers_leaves_by_the_queue_beside_what_its_owner_does() {
    let mut rig = rig(1514, false);
    let (peer, calls) = (Peer::at(ends()), Calls::default());
    let queue = Arc::clone(rig.port.inbox.queue());
    let mut batch = SendBatch::of(&queue);
    assert!(rig.port.outbox.add(&peer, b"owner", []));
    assert!(batch.add(&peer, b"", [&b"thief"[..]]) && batch.add(&peer, b"thief", []));
    assert_eq!(batch.post_or_drop(&calls).sent, 2);
    assert_eq!(rig.transmit.look(), 3, "a post sends all datagrams");
    assert_eq!(rig.port.outbox.post_or_drop(&calls).sent, 1, "each post counts its own datagrams");
    assert!(batch.add(&peer, b"last", []) && !batch.add(&peer, b"too many", []));
    assert_eq!(batch.post_or_drop(&calls).sent, 1);
    assert_eq!((rig.transmit.look(), queue.waiting()), (4, 4));
    drop(batch);
    // After the thief's datagrams have left, the owner can use their chunks.
    rig.transmit.release(4);
    for chunk in 4..8 {
        assert!(rig.completion.push(CHUNK_BYTES * chunk));
    }
    rig.completion.publish();
    assert!(rig.port.outbox.add(&peer, b"", []));
    assert_eq!((rig.port.outbox.in_transmission(), rig.port.outbox.strays()), (1, 0));
    assert!(rig.is_accounted_for());
}

/// Acts as the kernel: sends `FRAMES` frames, and counts answers in `done`. Returns their numbers.
fn exchange(rig: Kernels<'_>, socket: &Socket, done: &AtomicU64) -> Vec<u64> {
    let Kernels { receive, fill, transmit, completion } = rig;
    let (mut sent, mut answered) = (0, Vec::new());
    while answered.len() < usize::try_from(FRAMES).unwrap() {
        let free = u64::from(fill.look()).min(FRAMES - sent);
        for ahead in 0..u32::try_from(free).unwrap() {
            let chunk = u32::try_from(fill.peek(ahead) / CHUNK_BYTES).unwrap();
            // SAFETY: the chunk is lent to the kernel, and this test acts as the kernel.
            let room = unsafe { socket.umem.write(chunk) };
            let frame = frame(&sent.to_be_bytes());
            room[256..256 + frame.len()].copy_from_slice(&frame);
            let (addr, len) = (u64::from(chunk) * CHUNK_BYTES + 256, frame.len().try_into());
            let options = XdpDescOptions::empty();
            assert!(receive.push(XdpDesc { addr, len: len.unwrap(), options }));
            sent += 1;
        }
        fill.release(u32::try_from(free).unwrap());
        receive.publish();
        let count = transmit.look();
        for ahead in 0..count {
            let descriptor = transmit.peek(ahead);
            let span = socket.umem.span(descriptor.addr, descriptor.len).unwrap();
            // SAFETY: the chunk is in transmission, and therefore the kernel's.
            let frame = unsafe { socket.umem.read(span) };
            answered.push(number(&frame[crate::wire::HEADERS_BYTES_V4..]));
            assert!(completion.push(descriptor.addr));
        }
        transmit.release(count);
        completion.publish();
        done.store(answered.len() as u64, Ordering::Relaxed); // the count orders no other memory
        std::thread::yield_now();
    }
    answered
}

struct Kernels<'r> {
    receive: &'r mut ProducerRing<XdpDesc>,
    fill: &'r mut ConsumerRing<u64>,
    transmit: &'r mut ConsumerRing<XdpDesc>,
    completion: &'r mut ProducerRing<u64>,
}

const FRAMES: u64 = 30_000;
/// Maximum numbers of datagrams that the owner and the thief take. Each maximum is below `FRAMES`,
/// so that the owner and the thief both take some datagrams.
const OWN_MAX: usize = 22_500;
const STOLEN_MAX: usize = 15_000;

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Steals datagrams and answers with their payload, until all frames are `done`. Returns the
/// numbers of the stolen datagrams.
fn steal(queue: &Arc<Queue>, done: &AtomicU64) -> Vec<u64> {
    let (calls, mut all, mut thief) = (Calls::default(), Vec::new(), StolenBatch::new(queue));
    // Relaxed: the count orders no other memory.
    while done.load(Ordering::Relaxed) < FRAMES {
        if all.len() < STOLEN_MAX {
            let _ = thief.steal(Arc::clone(queue), &calls);
        }
        if let Some((datagrams, from)) = thief.halves() {
            let mut batch = SendBatch::of(from);
            for one in datagrams {
                all.push(number(one.bytes));
                while !batch.add(one.peer, one.bytes, []) {
                    batch.post_or_drop(&calls);
                    std::thread::yield_now();
                }
            }
            batch.post_or_drop(&calls);
        }
        thief.release();
        std::thread::yield_now();
    }
    all
}

#[test]
fn of_an_owner_and_a_thief_one_gets_each_frame_and_both_answer() {
    let Rig { port, mut receive, mut fill, mut transmit, mut completion } = rig_of(64, 1514, false);
    let Port { mut inbox, mut outbox, socket, .. } = port;
    let (queue, done) = (Arc::clone(inbox.queue()), AtomicU64::new(0));
    let (own, stolen, mut answered) = std::thread::scope(|scope| {
        let rings = Kernels {
            receive: &mut receive,
            fill: &mut fill,
            transmit: &mut transmit,
            completion: &mut completion,
        };
        let kernel = scope.spawn(|| exchange(rings, &socket, &done));
        let stolen = scope.spawn(|| steal(&queue, &done));
        let (calls, mut own) = (Calls::default(), Vec::new());
        while done.load(Ordering::Relaxed) < FRAMES {
            if own.len() >= OWN_MAX {
                inbox.release(); // gives back the last chunks
                std::thread::yield_now();
                continue;
            }
            let _ = inbox.receive(&calls);
            for one in inbox.datagrams() {
                own.push(number(one.bytes));
                while !outbox.add(one.peer, one.bytes, []) {
                    outbox.post_or_drop(&calls);
                    std::thread::yield_now();
                }
            }
            outbox.post_or_drop(&calls);
            std::thread::yield_now();
        }
        inbox.release();
        (own, stolen.join().unwrap(), kernel.join().unwrap())
    });
    assert!(!own.is_empty() && !stolen.is_empty(), "{} and {}", own.len(), stolen.len());
    let mut received = [own, stolen].concat();
    for all in [&mut received, &mut answered] {
        all.sort_unstable();
        assert_eq!(*all, (0..FRAMES).collect::<Vec<_>>());
    }
    outbox.reap();
    assert_eq!((inbox.lent_and_held(), outbox.free_and_sent()), ((32, 0), (32, 0)));
    assert_eq!((inbox.strays(), outbox.strays()), (0, 0));
}
