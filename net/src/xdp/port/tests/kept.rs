//! Tests of received values that are kept in their chunks; the test acts as the kernel.
//!
//! Where: part of the tests of a port (the AF_XDP socket of one queue), whose rings are ordinary
//! memory, without a socket.
//! Invariant: a kept value does not change although the kernel writes to every chunk that was lent.
//! The kernel always has the same number of chunks, and none of these chunks holds a kept value.

use std::collections::BTreeSet;

use memory::arena::KeptBytes;

use super::*;

/// Makes a rig with four chunks for receiving and `values` chunks for values.
fn keeping(values: u32) -> Rig {
    keeping_frames(values, (1514, false))
}

fn keeping_frames(values: u32, frames: (usize, bool)) -> Rig {
    let arena = Arena::new(16, values, 2048).unwrap().keeping(true);
    rig_in(no_socket(), Umem::with_metadata(&Arc::new(arena)), 8..16, frames)
}

impl Rig {
    fn fill_all(&mut self, text: &[u8]) -> usize {
        let lent = self.lent();
        let all: Vec<XdpDesc> = lent
            .iter()
            .map(|address| self.put(u32::try_from(address / CHUNK_BYTES).unwrap(), &frame(text)))
            .collect();
        self.send(&all);
        lent.len()
    }

    fn keep(&self, bytes: &[u8]) -> Option<KeptBytes> {
        self.port.socket.umem.arena().keep(bytes)
    }
}

#[test]
fn what_is_kept_stays_as_it_came_and_the_kernel_has_as_many_chunks() {
    let mut rig = keeping(20);
    let mut all: Vec<(KeptBytes, Vec<u8>)> = Vec::new();
    for round in 0..12_u8 {
        let text: Vec<u8> = (round..=255).step_by(3).cycle().take(1400).collect();
        assert_eq!(rig.fill_all(&text), 4);
        assert_eq!(rig.port.inbox.receive(&Calls::default()).datagrams, 4);
        // Keeps one whole datagram, and a part of another datagram.
        let shown: Vec<&[u8]> = rig.port.inbox.datagrams().map(|one| one.bytes).collect();
        let kept = [shown[1], &shown[3][100..1234]].map(|it| (rig.keep(it), it));
        let kept = kept.map(|(kept, it)| (kept.map(|kept| (kept, it.to_vec())), it.as_ptr()));
        for (kept, at) in kept {
            assert_eq!(kept.is_some(), round < 10, "kept as long as chunks are free");
            assert!(
                kept.as_ref().is_none_or(|(kept, _)| kept.as_ptr() == at),
                "the value is in its chunk"
            );
            all.extend(kept);
        }
        let Chunks { lent, held, .. } = rig.port.chunks();
        assert_eq!((lent, held), (0, 4));
        // In even rounds `release` gives up the chunks, in odd rounds the next `receive`.
        if round % 2 == 0 {
            rig.port.inbox.release();
            assert!(rig.is_accounted_for() && rig.port.chunks().lent == 4);
        }
        let _ = rig.port.inbox.receive(&Calls::default());
        assert!(rig.is_accounted_for());
        assert!(all.iter().all(|(kept, text)| kept[..] == text[..]), "round {round}");
    }
    let at: BTreeSet<*const u8> = all.iter().map(|(kept, _)| kept.as_ptr()).collect();
    assert_eq!((at.len(), rig.free_values()), (20, 0));
    all.clear();
    assert_eq!((rig.free_values(), rig.port.inbox.strays()), (20, 0));
}

#[test]
fn a_chunk_that_was_lent_in_place_of_another_is_known_and_the_kept_one_is_a_stray() {
    let mut rig = keeping(1);
    rig.lent();
    let first = rig.put(9, &frame(b"kept"));
    rig.send(&[first]);
    let _ = rig.port.inbox.receive(&Calls::default());
    let shown = rig.port.inbox.datagrams().next().unwrap().bytes;
    let kept = rig.keep(shown).unwrap();
    rig.port.inbox.release();
    let lent = rig.lent();
    assert_eq!(lent, [16 * CHUNK_BYTES], "the chunk that was free");
    rig.send(&[first]);
    assert!(rig.got().is_empty());
    assert_eq!((rig.port.inbox.strays(), &kept[..]), (1, &b"kept"[..]));
    let next = rig.put(16, &frame(b"next"));
    rig.send(&[next]);
    assert_eq!(rig.got(), [b"next"]);
    assert_eq!(rig.port.chunks(), Chunks { all: 8, lent: 3, held: 1, free: 4, sent: 0, values: 0 });
    assert_eq!(rig.port.inbox.strays(), 1);
}

#[test]
fn what_is_kept_is_sent_from_where_it_came_though_it_is_gone_by_then() {
    let mut rig = keeping(4);
    let text: Vec<u8> = (0..=255).cycle().take(1200).collect();
    rig.fill_all(&text);
    let _ = rig.port.inbox.receive(&Calls::default());
    let arena = Arc::clone(rig.port.socket.umem.arena());
    for one in rig.port.inbox.datagrams() {
        let kept = arena.keep(&one.bytes[100..]).unwrap();
        assert!(rig.port.outbox.add(one.peer, b"answer", [&kept[..]]));
    }
    rig.port.inbox.release();
    let datagrams = rig.posted();
    // Now only the descriptors have references to the chunks.
    assert_eq!((rig.free_values(), rig.port.chunks().values), (0, 4));
    rig.fill_all(b"over what came before");
    for datagram in &datagrams {
        assert_eq!(datagram.len(), 2);
        assert!(rig.payload(datagram) == [b"answer", &text[100..]].concat());
    }
    rig.complete(datagrams.iter().flatten());
    assert_eq!((rig.free_values(), rig.port.outbox.strays()), (4, 0));
    assert!(rig.got().iter().all(|got| got == b"over what came before"));
}

#[test]
fn an_inbox_that_goes_leaves_what_is_kept() {
    let mut rig = keeping(3);
    rig.fill_all(b"some are kept");
    let _ = rig.port.inbox.receive(&Calls::default());
    let arena = Arc::clone(rig.port.socket.umem.arena());
    let kept: Vec<KeptBytes> =
        rig.port.inbox.datagrams().filter_map(|one| arena.keep(one.bytes)).collect();
    assert_eq!((kept.len(), arena.free()), (3, 0));
    drop(rig);
    assert!(kept.iter().all(|kept| kept[..] == *b"some are kept"));
    drop(kept);
    assert_eq!(arena.free(), 3, "kept chunks are free, the port's are not");
}

#[test]
fn what_a_thief_takes_is_not_kept() {
    let mut rig = keeping(3);
    rig.fill_all(b"stolen");
    let queue = Arc::clone(rig.port.inbox.queue());
    let mut thief = StolenBatch::new(&queue);
    assert_eq!(thief.steal(queue, &Calls::default()).datagrams, 4);
    let (mut datagrams, _) = thief.halves().unwrap();
    assert!(datagrams.all(|one| rig.keep(one.bytes).is_none() && one.bytes == b"stolen"));
    assert_eq!((rig.free_values(), rig.port.chunks().lent), (3, 4));
}

fn pieces(rig: &Rig) -> Vec<&[u8]> {
    let one = rig.port.inbox.datagrams().next().unwrap();
    let pieces: Vec<&[u8]> =
        std::iter::once(one.bytes).chain(one.more.into_iter().flat_map(|it| it.iter())).collect();
    assert_eq!((one.len(), one.is_empty()), (pieces.concat().len(), pieces.concat().is_empty()));
    pieces
}

#[test]
fn a_frame_in_several_chunks_stays_there_and_what_is_kept_of_it_stays_as_it_came() {
    let mut rig = keeping_frames(6, (5000, true));
    let text: Vec<u8> = (0..=255).cycle().take(4000).collect();
    let (mut kept, mut lent) = (Vec::<KeptBytes>::new(), rig.lent());
    // The frame is cut at odd and at even bytes, with or without padding after the packet.
    for (cuts, behind) in
        [([1792, 3584], 0), ([1501, 3002], 0), ([1001, 2300], 7), ([1792, 3584], 9)]
    {
        assert_eq!((lent.len(), rig.port.chunks().lent), (4, 4));
        let lent_to = |at: &u64| u32::try_from(at / CHUNK_BYTES).unwrap();
        lent.iter().for_each(|at| _ = rig.put(lent_to(at), &[0xee; 1792]));
        let whole = [frame(&text), vec![0; behind]].concat();
        let parts = [&whole[..cuts[0]], &whole[cuts[0]..cuts[1]], &whole[cuts[1]..]];
        let mut all: Vec<XdpDesc> =
            lent.drain(..3).zip(parts).map(|(at, part)| rig.put(lent_to(&at), part)).collect();
        all[..2].iter_mut().for_each(|it| it.options = XdpDescOptions::XDP_PKT_CONTD);
        rig.send(&all[..2]);
        assert_eq!(rig.port.inbox.receive(&Calls::default()).datagrams, 0);
        rig.send(&all[2..]);
        assert_eq!(rig.port.inbox.receive(&Calls::default()).datagrams, 1);
        let shown = pieces(&rig);
        assert_eq!(shown.concat(), text);
        let at: Vec<usize> = shown.iter().map(|piece| piece.as_ptr().addr() & 2047).collect();
        assert_eq!(at, [256 + 42, 256, 256], "the pieces are in their chunks");
        assert_eq!((rig.port.chunks().held, rig.is_accounted_for()), (3, true));
        let its = if kept.is_empty() { 0..3 } else { 1..2 };
        let more: Vec<KeptBytes> = shown[its].iter().filter_map(|piece| rig.keep(piece)).collect();
        kept.extend(more);
        rig.port.inbox.release();
        lent.extend(rig.lent());
    }
    let lengths: Vec<usize> = kept.iter().map(|kept| kept.len()).collect();
    assert_eq!(lengths, [1750, 1792, 458, 1501, 1299, 1792]);
    let text_of = |range: std::ops::Range<usize>| {
        kept[range].iter().flat_map(|kept| kept.iter().copied()).collect::<Vec<u8>>()
    };
    assert_eq!(text_of(0..3), text);
    assert_eq!([text_of(3..4), text_of(4..5)], [&text[1459..2960], &text[959..2258]]);
    drop(kept);
    assert_eq!((rig.free_values(), rig.port.inbox.strays()), (6, 0));
}

#[test]
fn of_a_frame_in_several_chunks_that_is_not_taken_nothing_is_held() {
    let mut rig = keeping_frames(6, (3000, true));
    rig.lent();
    let more = |descriptor| XdpDesc { options: XdpDescOptions::XDP_PKT_CONTD, ..descriptor };
    let text: Vec<u8> = (0..=255).cycle().take(2900).collect();
    let whole = frame(&text);
    let (first, rest) = whole.split_at(1792);
    let (first, rest) = (more(rig.put(9, first)), rig.put(11, rest));
    let long = XdpDesc { len: 3001 - 1792, ..rest };
    rig.send(&[first, long]);
    let received = rig.port.inbox.receive(&Calls::default());
    assert_eq!((received.datagrams, received.cut), (0, 1));
    rig.send(&[first, XdpDesc { addr: u64::MAX, ..rest }]);
    assert!(rig.got().is_empty() && rig.port.inbox.strays() == 1);
    assert_eq!(rig.lent().len(), 3, "lent again; the kernel has the fourth");
    let wrong = rig.put(11, &vec![7; whole.len() - 1792]);
    rig.send(&[first, wrong]);
    assert!(rig.got().is_empty() && rig.port.inbox.refused(Rejected::Checksum) == 1);
    assert_eq!((rig.port.chunks().lent, rig.port.chunks().held), (4, 0));
    assert_eq!(rig.lent().len(), 2);
    // The inbox holds a long and a short frame, and then lends their chunks again.
    let good = rig.put(11, &whole[1792..]);
    let short = rig.put(10, &frame(b"short"));
    rig.send(&[first, good, short]);
    assert_eq!(rig.port.inbox.receive(&Calls::default()).datagrams, 2);
    assert_eq!((rig.port.chunks().held, pieces(&rig).concat() == text), (3, true));
    rig.port.inbox.release();
    assert!(rig.is_accounted_for() && rig.port.chunks().lent == 4);
}
