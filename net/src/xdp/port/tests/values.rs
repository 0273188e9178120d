//! Tests of values that are sent in place; the test acts as the kernel.
//!
//! Where: part of the tests of a port, whose rings are in memory.
//! Invariant: each descriptor is valid for the kernel. The joined parts of a frame, with the
//! checksum that the kernel computes, are the datagram. A part that a descriptor names does not
//! change until the descriptor completes.
//! Source: `net/xdp/xsk_queue.h` of Linux, `xp_aligned_validate_desc`; `net/xdp/xsk.c`,
//! `xsk_skb_metadata`.

use super::*;
use memory::arena::VALUE_AT;

const PART_BYTES: usize = 2048 - VALUE_AT;

/// Makes a rig with chunks for `datagrams` datagrams, after the chunks of another port, and with
/// `values` chunks for values. The kernel computes the checksum of a frame in several parts.
fn rig(datagrams: u32, values: u32) -> Rig {
    rig_summed((datagrams, values), true)
}

/// Like `rig`, but if `by_kernel` is false, the outbox computes the checksum of all parts.
fn rig_summed((datagrams, values): (u32, u32), by_kernel: bool) -> Rig {
    let arena = Arc::new(Arena::new(8 + 2 * datagrams, values, 2048).unwrap());
    let umem = if by_kernel { Umem::with_metadata(&arena) } else { Umem::new(arena) };
    rig_in(no_socket(), umem, 8..8 + 2 * datagrams, (9014, true))
}

/// A datagram's head, its pieces, and the expected number of its descriptors.
type Datagram<'l> = (&'l [u8], Vec<&'l [u8]>, usize);

/// A part of a value, to which the test has a reference.
#[derive(Clone, Debug)]
struct Part {
    chunk: u32,
    socket: Arc<Socket>,
    bytes: usize,
}

impl Part {
    /// Makes a part of `bytes` bytes, beginning with the byte `seed`, in a separate chunk.
    fn new(rig: &Rig, seed: u8, bytes: usize) -> Part {
        let socket = Arc::clone(&rig.port.socket);
        let chunk = socket.umem.arena().take().expect("room for values");
        let text: Vec<u8> = (0..=255).cycle().skip(seed.into()).step_by(7).take(bytes).collect();
        // SAFETY: the chunk was taken just now, and has room for `bytes` bytes.
        unsafe { socket.umem.arena().at(chunk).add(VALUE_AT).copy_from(text.as_ptr(), bytes) };
        Part { chunk, socket, bytes }
    }

    fn at(&self, range: std::ops::Range<usize>) -> &[u8] {
        let span = Span { chunk: self.chunk, at: VALUE_AT + range.start, bytes: range.len() };
        // SAFETY: a chunk with a reference is not written to after it was filled.
        unsafe { self.socket.umem.read(span) }
    }

    fn all(&self) -> &[u8] {
        self.at(0..self.bytes)
    }

    /// Releases the value's reference, as the store does when it unlinks an item.
    fn unlink(self) -> u32 {
        self.socket.umem.arena().release(self.chunk);
        self.chunk
    }
}

impl Rig {
    /// Posts the added datagrams, and returns the descriptors of each datagram.
    pub(super) fn posted(&mut self) -> Vec<Vec<XdpDesc>> {
        self.port.outbox.post_or_drop(&Calls::default());
        let count = self.transmit.look();
        let all: Vec<XdpDesc> = (0..count).map(|ahead| self.transmit.peek(ahead)).collect();
        self.transmit.release(count);
        let ends = |it: &XdpDesc| !it.options.contains(XdpDescOptions::XDP_PKT_CONTD);
        assert!(all.last().is_none_or(ends), "the last datagram has its last part");
        all.split_inclusive(ends).map(<[XdpDesc]>::to_vec).collect()
    }

    /// Returns the payload of the packet that the kernel makes of a datagram's descriptors.
    pub(super) fn payload(&self, datagram: &[XdpDesc]) -> Vec<u8> {
        assert!((1..=18).contains(&datagram.len()), "a kernel that copies takes 18 parts");
        // SAFETY: the chunk is in transmission, so it is the kernel's; the test acts as the kernel.
        let read = |at: u64, bytes| unsafe {
            let umem = &self.port.socket.umem;
            umem.read(umem.span(at, bytes).expect("within one chunk"))
        };
        let (mut frame, room) = (Vec::new(), self.port.socket.umem.metadata_bytes() as u64);
        for part in datagram {
            let before = part.addr % CHUNK_BYTES;
            assert!(before >= room && before + u64::from(part.len) <= CHUNK_BYTES && part.len > 0);
            frame.extend_from_slice(read(part.addr, part.len));
        }
        let have_metadata: Vec<bool> =
            datagram.iter().map(|it| it.options.bits() & 2 != 0).collect();
        assert!(have_metadata.iter().enumerate().all(|(number, have_metadata)| *have_metadata
            == (number == 0 && datagram.len() > 1 && room > 0)));
        if have_metadata[0] {
            let metadata = read(datagram[0].addr - 16, 16);
            assert_eq!((&metadata[..8], &metadata[12..]), (&2_u64.to_ne_bytes()[..], &[0; 4][..]));
            let field =
                |at: usize| usize::from(u16::from_ne_bytes([metadata[at], metadata[at + 1]]));
            let (from, sum_at) = (field(8), field(8) + field(10));
            assert!(sum_at + 2 <= datagram[0].len as usize, "the checksum is in the first part");
            let sum = summed(&frame[from..]).to_be_bytes();
            frame[sum_at..sum_at + 2].copy_from_slice(&sum);
        }
        let packet = crate::wire::read(&frame, Sums::Whole).unwrap();
        assert_eq!(packet.ends.header_bytes() + packet.payload_bytes, frame.len());
        frame[packet.ends.header_bytes()..].to_vec()
    }

    pub(super) fn complete<'d>(&mut self, descriptors: impl IntoIterator<Item = &'d XdpDesc>) {
        for descriptor in descriptors {
            assert!(self.completion.push(descriptor.addr));
        }
        self.completion.publish();
        self.port.outbox.reap();
    }

    pub(super) fn free_values(&self) -> u32 {
        self.port.socket.umem.arena().free()
    }
}

/// Computes the UDP checksum (RFC 768), as the kernel does if a packet's metadata request it.
fn summed(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !u16::try_from(sum).unwrap() {
        0 => u16::MAX,
        sum => sum,
    }
}

#[test]
fn parts_of_values_leave_from_where_they_lie_and_what_stands_between_them_is_copied() {
    [true, false].into_iter().for_each(parts_leave_from_where_they_lie);
}

fn parts_leave_from_where_they_lie(summed_by_kernel: bool) {
    let mut rig = rig_summed((4, 4), summed_by_kernel);
    let [a, b, c] = [(b'a', PART_BYTES), (b'b', PART_BYTES), (b'c', 333)]
        .map(|(seed, bytes)| Part::new(&rig, seed, bytes));
    let elsewhere = vec![b'e'; 500];
    let v6 = Ends { ips: Ips::V6 { from: [1; 16].into(), to: [2; 16].into() }, ..ends() };
    let datagrams: [Datagram<'_>; 10] = [
        (b"text", vec![b"before ", a.all(), b.all(), c.all(), b"behind"], 5),
        (b"", vec![c.all()], 2),
        (b"odd", vec![a.at(7..300), b"!", a.at(301..702), b"?"], 5),
        (b"od", vec![a.at(7..300), b"!", a.at(301..702), b.at(4..105), b"!?", b.at(6..107)], 7),
        (b"", vec![b"!", b.at(9..208), c.at(0..101), b"?"], 4),
        (b"short", vec![a.at(5..104)], 1),
        (b"not too short", vec![a.at(5..105)], 2),
        (b"at the ends", vec![a.at(0..100), b.at(PART_BYTES - 100..PART_BYTES)], 3),
        (b"of no value", vec![&elsewhere], 1),
        (b"none", vec![], 1),
    ];
    for ends in [ends(), v6] {
        for (head, pieces, count) in &datagrams {
            let head: &[u8] = head;
            assert!(rig.port.outbox.add(&Peer::at(ends), head, pieces.iter().copied()));
            let tally = rig.port.outbox.post_or_drop(&Calls::default());
            let datagram = rig.posted().pop().unwrap();
            let expected = [head, &pieces.concat()].concat();
            assert_eq!(rig.payload(&datagram), expected);
            assert_eq!(datagram.len(), *count, "{}", String::from_utf8_lossy(head));
            let is_left = |it: &&&[u8]| it.len() >= IN_PLACE_MIN && it[..] != elsewhere;
            let in_place: usize = pieces.iter().filter(is_left).map(|it| it.len()).sum();
            let copied = ends.header_bytes() + expected.len() - in_place;
            assert_eq!((tally.in_place_bytes, tally.copied_bytes), (in_place, copied));
            rig.complete(&datagram);
        }
    }
    assert_eq!((rig.port.outbox.strays(), rig.free_values()), (0, 1));
    assert_eq!(rig.port.chunks(), Chunks { all: 8, lent: 4, held: 0, free: 4, sent: 0, values: 0 });
}

#[test]
fn a_value_stays_until_each_descriptor_that_names_it_has_completed() {
    const DATAGRAMS: usize = 1000;
    let mut rig = rig(1024, 8);
    let value = Part::new(&rig, b'v', 1200);
    let text = value.all().to_vec();
    for number in 0..DATAGRAMS {
        let number = number.to_be_bytes();
        assert!(rig.port.outbox.add(&Peer::at(ends()), &number, [&number[..], value.all()]));
    }
    let datagrams = rig.posted();
    assert_eq!((datagrams.len(), rig.port.chunks().values), (DATAGRAMS, DATAGRAMS));
    let chunk = value.unlink();
    let mut others = Vec::new();
    while rig.free_values() > 0 {
        others.push(Part::new(&rig, b'o', PART_BYTES));
    }
    assert_eq!(others.len(), 7);
    for (number, datagram) in datagrams.iter().enumerate() {
        let number = number.to_be_bytes();
        assert_eq!(rig.payload(datagram), [&number, &number, &text[..]].concat());
    }
    rig.complete(datagrams[1..].iter().flatten());
    assert_eq!((rig.free_values(), rig.port.chunks().values), (0, 1));
    assert_eq!(rig.payload(&datagrams[0])[16..], text);
    rig.complete(&datagrams[0]);
    assert_eq!((rig.free_values(), rig.port.chunks().values), (1, 0));
    assert_eq!(rig.port.outbox.strays(), 0);
    rig.complete(&datagrams[0]);
    assert_eq!((rig.port.outbox.strays(), rig.free_values()), (2, 1));
    assert_eq!(Part::new(&rig, b'n', 1).chunk, chunk);
    let Chunks { free, sent, .. } = rig.port.chunks();
    assert_eq!((free, sent), (1024, 0));
}

#[test]
fn what_is_not_sent_holds_nothing() {
    let mut rig = rig(4, 2);
    let value = Part::new(&rig, b'v', PART_BYTES);
    let peer = Peer::at(ends());
    // Both datagrams are too long: five parts in place, or two parts in place with copied bytes.
    let copied = vec![0; 1900];
    let too_long: [Vec<&[u8]>; 2] =
        [vec![value.all(); 5], vec![value.all(), &copied[..], value.all(), &copied[..]]];
    for pieces in too_long {
        assert!(rig.port.outbox.add(&peer, b"", pieces));
        let tally = rig.port.outbox.post_or_drop(&Calls::default());
        assert_eq!((tally.sent, tally.too_long, tally.in_place_bytes), (0, 1, 0));
        assert_eq!((rig.port.chunks().values, rig.transmit.look()), (0, 0));
    }
    let shorts: Vec<&[u8]> =
        (0..10).map(|number| value.at(100 * number..100 * number + 100)).collect();
    assert!(rig.port.outbox.add(&peer, b"", shorts.iter().copied()));
    let datagram = rig.posted().pop().unwrap();
    assert_eq!((datagram.len(), rig.port.chunks().values), (PARTS_MAX, PARTS_MAX - 2));
    assert_eq!(rig.payload(&datagram), shorts.concat());
    rig.complete(&datagram);
    // The ring has room for 16 descriptors; an `add` needs room for `PARTS_MAX`, which is eight.
    let add =
        |rig: &mut Rig| rig.port.outbox.add(&peer, b"", [value.at(0..100), b"-", value.at(0..100)]);
    assert!(add(&mut rig) && add(&mut rig) && add(&mut rig));
    assert_eq!(rig.port.chunks().values, 6);
    assert!(!add(&mut rig), "the ring has no room for eight parts");
    assert_eq!((rig.port.chunks().values, rig.port.chunks().free), (6, 1));
    let datagrams = rig.posted();
    assert!(add(&mut rig), "the kernel has taken descriptors");
    rig.complete(datagrams.iter().flatten());
    let last = rig.posted();
    rig.complete(last.iter().flatten());
    value.unlink();
    assert_eq!((rig.free_values(), rig.port.outbox.strays()), (2, 0));
}

#[test]
fn a_port_that_is_closed_holds_no_value_any_more() {
    let mut rig = rig(4, 2);
    let (value, arena) =
        (Part::new(&rig, b'v', PART_BYTES), Arc::clone(rig.port.socket.umem.arena()));
    let of_value = || [value.at(0..200), value.at(500..700)];
    assert!((0..2).all(|_| rig.port.outbox.add(&Peer::at(ends()), b"", of_value())));
    // The kernel has sent one datagram and has taken a second. The third datagram is not posted.
    let datagrams = rig.posted();
    rig.complete(&datagrams[0]);
    assert!(rig.port.outbox.add(&Peer::at(ends()), b"", of_value()));
    assert_eq!(rig.port.chunks().values, 4);
    let Part { chunk, socket, .. } = value;
    arena.release(chunk);
    drop(rig);
    assert_eq!(arena.free(), 1, "the socket is still referenced");
    drop(socket);
    assert_eq!(arena.free(), 2);
}
