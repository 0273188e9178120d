//! Tests of a queue used by its owner, a thief and a simulated kernel, under random schedules.
//!
//! Where: run by `make explore`; the rings are in memory.
//! Invariant: the tests run the same source as the server. A chunk does not change from the
//! publication of its descriptor until the descriptor completes.

use super::*;
use memory::arena::VALUE_AT;
use shuttle::thread;
use testing::Random;
use testing::schedules::explore_drawn;

/// Duration of each test in seconds, unless `EXPLORE_SECONDS` or `EXPLORE_SCHEDULES` is set.
const SECONDS: u64 = 10;

/// The thread that acts as the kernel, with the datagrams that it has taken and not sent yet.
struct KernelThread {
    receive: ProducerRing<XdpDesc>,
    fill: ConsumerRing<u64>,
    transmit: ConsumerRing<XdpDesc>,
    completion: ProducerRing<u64>,
    socket: Arc<Socket>,
    random: Random,
    /// For each datagram taken, its descriptors, and the bytes in their chunks at that moment.
    taken: Vec<(Vec<XdpDesc>, Vec<u8>)>,
}

impl KernelThread {
    /// Receives frames with the numbers from `next` to `below` into chunks lent to the kernel.
    fn receive(&mut self, next: &mut u64, below: u64) {
        let lent = self.fill.look();
        let free = u64::from(lent).min(below - *next).min(self.random.below(4));
        let free = u32::try_from(free).unwrap();
        for ahead in 0..free {
            let chunk = u32::try_from(self.fill.peek(ahead) / CHUNK_BYTES).unwrap();
            let frame = frame(&next.to_be_bytes());
            // SAFETY: the chunk is lent to the kernel, and this test acts as the kernel.
            let room = unsafe { self.socket.umem.write(chunk) };
            room[256..256 + frame.len()].copy_from_slice(&frame);
            let (addr, len) = (u64::from(chunk) * CHUNK_BYTES + 256, frame.len().try_into());
            let options = XdpDescOptions::empty();
            assert!(self.receive.push(XdpDesc { addr, len: len.unwrap(), options }));
            *next += 1;
        }
        self.fill.release(free);
        self.receive.publish();
    }

    fn bytes(&self, datagram: &[XdpDesc]) -> Vec<u8> {
        let span = |part: &XdpDesc| self.socket.umem.span(part.addr, part.len).unwrap();
        // SAFETY: the chunks are in transmission, so they are the kernel's; we act as the kernel.
        datagram
            .iter()
            .flat_map(|part| unsafe { self.socket.umem.read(span(part)) }.to_vec())
            .collect()
    }

    /// Takes a random number of the posted datagrams.
    fn take(&mut self) {
        let count = self.transmit.look();
        let all: Vec<XdpDesc> = (0..count).map(|ahead| self.transmit.peek(ahead)).collect();
        let ends = |it: &XdpDesc| !it.options.contains(XdpDescOptions::XDP_PKT_CONTD);
        assert!(all.last().is_none_or(ends), "the last datagram has its last part");
        let batch: Vec<&[XdpDesc]> = all.split_inclusive(ends).collect();
        let some = self.random.index(batch.len() + 1);
        let mut parts = 0;
        for datagram in &batch[..some] {
            parts += u32::try_from(datagram.len()).unwrap();
            let bytes = self.bytes(datagram);
            self.taken.push((datagram.to_vec(), bytes));
        }
        self.transmit.release(parts);
    }

    fn send(&mut self) -> Option<Vec<u8>> {
        if self.taken.is_empty() {
            return None;
        }
        let (datagram, bytes) = self.taken.swap_remove(self.random.index(self.taken.len()));
        assert_eq!(self.bytes(&datagram), bytes, "the datagram was overwritten before it had left");
        datagram.iter().for_each(|part| assert!(self.completion.push(part.addr)));
        self.completion.publish();
        Some(bytes[crate::wire::HEADERS_BYTES_V4..].to_vec())
    }
}

/// Calls `add` until it succeeds, and `post` after each call of `add`.
fn write(mut add: impl FnMut() -> bool, mut post: impl FnMut()) {
    while !add() {
        post();
        thread::yield_now();
    }
    post();
}

fn parts(rig: Rig, random: &mut Random) -> (Inbox, Outbox, KernelThread) {
    let Rig { port, receive, fill, transmit, completion } = rig;
    let Port { inbox, outbox, socket, .. } = port;
    let random = Random::new(random.next());
    let taken = Vec::new();
    (inbox, outbox, KernelThread { receive, fill, transmit, completion, socket, random, taken })
}

/// Acts as the kernel: delivers `frames` frames and sends the answers, whose numbers it returns.
fn exchange_drawn(
    mut other: KernelThread,
    frames: u64,
    done: &AtomicU64,
) -> (Vec<u64>, KernelThread) {
    let (mut next, mut answered) = (0, Vec::new());
    while answered.len() < usize::try_from(frames).unwrap() {
        other.receive(&mut next, frames);
        other.take();
        answered.extend(other.send().map(|bytes| number(&bytes)));
        done.store(answered.len() as u64, Ordering::Relaxed); // the count orders no other memory
        thread::yield_now();
    }
    (answered, other)
}

#[test]
fn of_an_owner_and_a_thief_one_gets_each_frame_and_both_answer() {
    explore_drawn(SECONDS, |random| {
        let frames = 3 + random.below(5);
        let (mut inbox, mut outbox, other) = parts(rig(1514, false), random);
        let (queue, done) = (Arc::clone(inbox.queue()), Arc::new(AtomicU64::new(0)));
        let kernel = {
            let done = Arc::clone(&done);
            thread::spawn(move || exchange_drawn(other, frames, &done))
        };
        let thief = {
            let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
            thread::spawn(move || {
                let (calls, mut all, mut thief) =
                    (Calls::default(), vec![], StolenBatch::new(&queue));
                while done.load(Ordering::Relaxed) < frames {
                    let _ = thief.steal(Arc::clone(&queue), &calls);
                    for one in thief.halves().into_iter().flat_map(|(datagrams, _)| datagrams) {
                        all.push(number(one.bytes));
                        let mut batch = SendBatch::of(&queue);
                        while !batch.add(one.peer, one.bytes, []) {
                            batch.post_or_drop(&calls);
                            thread::yield_now();
                        }
                        batch.post_or_drop(&calls);
                    }
                    thief.release();
                    thread::yield_now();
                }
                all
            })
        };
        let (calls, mut received) = (Calls::default(), Vec::new());
        while done.load(Ordering::Relaxed) < frames {
            let _ = inbox.receive(&calls);
            let come: Vec<(Peer, Vec<u8>)> =
                inbox.datagrams().map(|one| (*one.peer, one.bytes.to_vec())).collect();
            for (peer, bytes) in come {
                received.push(number(&bytes));
                let out = std::cell::RefCell::new(&mut outbox);
                let add = || out.borrow_mut().add(&peer, &bytes, []);
                write(add, || _ = out.borrow_mut().post_or_drop(&calls));
            }
            thread::yield_now();
        }
        inbox.release();
        let (mut answered, _other) = kernel.join().unwrap();
        received.extend(thief.join().unwrap());
        for all in [&mut received, &mut answered] {
            all.sort_unstable();
            assert_eq!(*all, (0..frames).collect::<Vec<_>>());
        }
        outbox.reap();
        assert_eq!((inbox.lent_and_held(), outbox.free_and_sent()), ((4, 0), (4, 0)));
        assert_eq!((inbox.strays(), outbox.strays()), (0, 0));
    });
}

fn value_of(number: u64) -> Vec<u8> {
    let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    bytes.into_iter().cycle().take(IN_PLACE_MIN + 7).collect()
}

/// Makes a value for datagram `datagram`, in a chunk to which the caller has the only reference.
fn value(arena: &Arena, datagram: u64) -> Option<(u32, &[u8])> {
    let (chunk, bytes) = (arena.take()?, value_of(datagram));
    // SAFETY: the chunk was just taken, and has room. No code writes to the chunk afterwards.
    let value = unsafe {
        let start = arena.at(chunk).add(VALUE_AT);
        start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        std::slice::from_raw_parts(start, bytes.len())
    };
    Some((chunk, value))
}

/// Posts `batch` datagrams from number `first` on. Releases each value right after its `add`.
fn send_values(
    arena: &Arena,
    (first, batch): (u64, u64),
    mut add: impl FnMut(&[u8], &[u8]) -> bool,
    mut post: impl FnMut(),
) {
    for number in first..first + batch {
        let (chunk, value) = loop {
            match value(arena, number) {
                Some(it) => break it,
                None => post(),
            }
            thread::yield_now();
        };
        while !add(&number.to_be_bytes(), value) {
            post();
            thread::yield_now();
        }
        arena.release(chunk);
        post();
    }
}

#[test]
fn a_value_that_is_gone_leaves_as_it_was_whoever_sends_it() {
    explore_drawn(SECONDS, |random| {
        let rig = rig_by(no_socket(), (8, 8, 2), (9014, true));
        let arena = Arc::clone(rig.port.socket.umem.arena());
        let batch = 1 + random.below(4);
        // If `unsent` is 1, the port is closed while a datagram is in transmission.
        let unsent = random.below(2);
        let (inbox, mut outbox, mut other) = parts(rig, random);
        let queue = Arc::clone(inbox.queue());
        let thief = {
            let (arena, queue) = (Arc::clone(&arena), Arc::clone(&queue));
            thread::spawn(move || {
                let (calls, to) = (Calls::default(), Peer::at(ends()));
                let post = || _ = queue.post(crate::udp::Tally::default(), &calls);
                let add = |head: &[u8], value: &[u8]| {
                    let mut its = SendBatch::of(&queue);
                    let is_added = its.add(&to, head, [value]);
                    its.post_or_drop(&calls);
                    is_added
                };
                send_values(&arena, (batch, batch), add, post);
            })
        };
        let kernel = thread::spawn(move || {
            let mut sent = Vec::new();
            while (sent.len() as u64) < 2 * batch - unsent {
                other.take();
                if let Some(bytes) = other.send() {
                    let (head, value) = bytes.split_at(8);
                    assert_eq!(*value, value_of(number(head)), "another's bytes");
                    sent.push(number(head));
                }
                thread::yield_now();
            }
            (sent, other)
        });
        let (calls, to) = (Calls::default(), Peer::at(ends()));
        let out = std::cell::RefCell::new(&mut outbox);
        let add = |head: &[u8], value: &[u8]| out.borrow_mut().add(&to, head, [value]);
        send_values(&arena, (0, batch), add, || _ = out.borrow_mut().post_or_drop(&calls));
        thief.join().unwrap();
        let (mut sent, other) = kernel.join().unwrap();
        sent.sort_unstable();
        sent.dedup();
        assert_eq!(sent.len() as u64, 2 * batch - unsent, "each is sent once");
        assert!(sent.iter().all(|number| *number < 2 * batch));
        outbox.reap();
        assert_eq!(outbox.strays(), 0);
        if unsent == 0 {
            assert_eq!((outbox.free_and_sent(), arena.free()), ((4, 0), 2));
        }
        drop((inbox, outbox, other, queue));
        assert_eq!(arena.free(), 2, "a closed port has no references");
    });
}
