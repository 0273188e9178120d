//! Tests of received datagrams that are kept in their chunks, over a link between namespaces.
//!
//! Where: in separate network namespaces, which need root.
//! Invariant: a kept datagram does not change, whatever arrives afterwards; the kernel has the same
//! number of chunks as before, and finds no descriptor invalid.

use memory::arena::KeptBytes;
use testing::namespace::{Veth, WIRE, pair};

use super::tests::{LIMIT, answer, assert_all_chunks, await_that, client};
use super::values::{VALUES, assert_at_rest, open_on, request_from};
use super::*;
use crate::Calls;

fn text(number: usize) -> Vec<u8> {
    let bytes = 300 + number * 37 % 1100;
    (0..=255_u8).cycle().skip(number % 256).step_by(3).take(bytes).collect()
}

#[test]
fn what_is_kept_stays_as_it_came_while_others_come_and_is_sent_from_there() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let Opened { mut ports, watch, arena } = open_on(&far, mode, true);
        assert!(watch.facts().sends_in_place);
        let (all, calls) = (arena.free() as usize, Calls::default());
        assert_eq!(all * arena.chunk_bytes(), VALUES.memory_bytes_max);
        let port = &mut ports[0];
        let mut kept: Vec<(usize, KeptBytes)> = Vec::new();
        for (family, to) in [far.v4.into(), std::net::IpAddr::from(far.v6)].into_iter().enumerate()
        {
            let client = client(&near, to);
            // The datagrams over IPv4 take all chunks for values, so no datagram over IPv6 is kept.
            for number in family * all..(family + 1) * all {
                client.send(&text(number)).unwrap();
                await_that(|| port.inbox.receive(&calls).datagrams > 0);
                let one = port.inbox.datagrams().next().unwrap();
                assert!(one.bytes == text(number));
                let mine = arena.keep(one.bytes);
                assert_eq!(mine.is_some(), family == 0, "{number}, {mode:?}");
                let value = kept.get(number * 7 % all).map_or(one.bytes, |(_, kept)| &kept[..]);
                assert!(port.outbox.add(one.peer, b"", [value]));
                let expected = value.to_vec();
                let is_in_place = arena.value_chunk_of(value.as_ptr()).is_some();
                let tally = port.outbox.post_or_drop(&calls);
                let in_place = if is_in_place { value.len() } else { 0 };
                assert_eq!((tally.sent, tally.in_place_bytes), (1, in_place));
                kept.extend(mine.map(|kept| (number, kept)));
                if number % 2 == 0 {
                    port.inbox.release();
                    assert_eq!(port.chunks().lent, port.chunks().all / 2);
                }
                assert_all_chunks(port);
                assert!(answer(&client) == expected);
            }
        }
        port.inbox.release();
        assert_eq!((kept.len(), arena.free()), (all, 0));
        assert!(kept.iter().all(|(number, kept)| kept[..] == text(*number)), "{mode:?}");
        assert_at_rest(port);
        drop(kept);
        assert_eq!(arena.free() as usize, all);
    }
}

#[test]
fn what_is_kept_is_sent_as_it_came_though_nobody_keeps_it_while_the_link_is_down() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let Opened { mut ports, arena, .. } = open_on(&far, mode, true);
        let (all, client, calls) = (arena.free(), client(&near, far.v4), Calls::default());
        let (_, peer) = request_from(&client, &mut ports);
        let port = &mut ports[0];
        let mut kept = Vec::new();
        for number in 0..64 {
            client.send(&text(number)).unwrap();
            await_that(|| port.inbox.receive(&calls).datagrams > 0);
            kept.extend(port.inbox.datagrams().filter_map(|one| arena.keep(one.bytes)));
        }
        assert_eq!(kept.len(), 64);
        far.ip(&format!("link set {WIRE} down"));
        for (number, kept) in kept.iter().enumerate() {
            assert!(port.outbox.add(&peer, &number.to_be_bytes(), [&kept[..]]));
        }
        drop(kept);
        port.outbox.post_or_drop(&calls);
        port.inbox.release();
        assert_eq!((port.chunks().values, arena.free()), (64, all - 64));
        far.ip(&format!("link set {WIRE} up"));
        client.set_nonblocking(true).unwrap();
        let (mut arrived, mut buffer) = (0, [0; 2000]);
        await_that(|| {
            port.outbox.post_or_drop(&calls);
            let _ = client.send(&text(1000));
            let _ = port.inbox.receive(&calls);
            while let Ok(bytes) = client.recv(&mut buffer) {
                let (number, got) = buffer[..bytes].split_first_chunk().unwrap();
                assert!(got == text(usize::from_be_bytes(*number)), "{mode:?}");
                arrived += 1;
            }
            port.outbox.waiting() == 0
        });
        port.inbox.release();
        assert_at_rest(port);
        assert_eq!(arena.free(), all);
        assert!(arrived <= 64);
    }
}

#[test]
fn what_is_kept_outlives_the_port_and_its_chunks_come_back_but_the_rings() {
    let Some([near, far]) = pair(Veth { queues: 1, mtu: 1500 }) else { return };
    let Opened { mut ports, arena, .. } = open_on(&far, Mode::Any, true);
    let (all, calls) = (arena.free(), Calls::default());
    let client = client(&near, far.v6);
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let (_, peer) = request_from(&client, &mut ports);
    let port = &mut ports[0];
    (0..10).for_each(|number| assert!(client.send(&text(number)).is_ok()));
    let mut received = 0;
    let mut kept = Vec::new();
    // When the inbox is dropped, it still holds the last datagrams.
    await_that(|| {
        received += port.inbox.receive(&calls).datagrams;
        kept.extend(port.inbox.datagrams().filter_map(|one| arena.keep(one.bytes)));
        received == 10
    });
    far.ip(&format!("link set {WIRE} down"));
    assert!(kept.iter().all(|kept| port.outbox.add(&peer, b"", [&kept[..]])));
    port.outbox.post_or_drop(&calls);
    drop(kept.drain(..5));
    assert_eq!(arena.free(), all - 10);
    drop(ports);
    assert!(kept.iter().zip(5..).all(|(kept, number)| kept[..] == text(number)));
    assert_eq!(arena.free(), all - 5);
    drop(kept);
    assert_eq!(arena.free(), all);
}

#[test]
fn frames_longer_than_a_chunk_stay_in_their_chunks_and_the_kernel_has_some_however_many_are_held() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some([near, far]) = pair(Veth { queues: 1, mtu: 9000 }) else { return };
        let Opened { mut ports, watch, arena } = open_on(&far, mode, true);
        assert!(watch.facts().is_long);
        let (client, calls, all) = (client(&near, far.v6), Calls::default(), arena.free());
        let (_, peer) = request_from(&client, &mut ports);
        let port = &mut ports[0];
        let text: Vec<u8> = (0..=250).cycle().take(9000 - 48).collect();
        let (mut received, mut kept) = (0, Vec::new());
        let sent = 120;
        for number in 0..sent {
            client.send(if number % 5 == 4 { b"short" } else { &text }).unwrap();
        }
        await_that(|| {
            received += port.inbox.receive(&calls).datagrams;
            for one in port.inbox.datagrams() {
                let pieces = one.more.into_iter().flat_map(|it| it.iter());
                let pieces: Vec<&[u8]> = std::iter::once(one.bytes).chain(pieces).collect();
                let bytes = pieces.concat();
                assert!(bytes == text || bytes == b"short", "{mode:?}");
                assert_eq!(pieces.len() > 1, bytes == text);
                // Keeps all pieces of a frame if there are free chunks for all of them.
                if bytes == text && arena.free() >= 3 {
                    let all = pieces.iter().map(|piece| arena.keep(piece));
                    kept.push(all.collect::<Option<Vec<KeptBytes>>>().expect("free chunks"));
                }
            }
            assert!(port.chunks().held <= crate::udp::BATCH_MAX);
            received == sent
        });
        port.inbox.release();
        assert_eq!(port.chunks().lent, port.chunks().all / 2);
        assert!(kept.len() >= all as usize / 3);
        for kept in &kept {
            let kept: &Vec<KeptBytes> = kept;
            let bytes: Vec<u8> = kept.iter().flat_map(|kept| kept.iter().copied()).collect();
            assert!(bytes == text, "{mode:?}");
            let most = port.outbox.payload_bytes_max(&peer).min(1400);
            assert!(port.outbox.add(&peer, b"", [&kept[1][..most]]));
            assert_eq!(port.outbox.post_or_drop(&calls).in_place_bytes, most);
            assert!(answer(&client) == kept[1][..most]);
        }
        assert_at_rest(port);
        drop(kept);
        assert_eq!(arena.free(), all);
        assert_eq!(port.meter().read().unwrap().dropped, 0);
    }
}
