//! A bag of datagrams, written one behind the other and sent together.
//!
//! ```text
//! bytes       | datagram | datagram | ...     datagrams, back to back
//! stretch     |---------------------|         those of one length, one flow and one receiver: one
//!                                             send
//! ```
//!
//! Where: between the wire, which writes requests or answers, and `net`'s outbox, which all lines
//! of a thread share.
//! Invariant: unsent datagrams wait in their order, apart from flows; the caller that fills a bag
//! checks its lengths, and so bounds it.

use net::{Calls, Datagrams, Obstacle, Outbox, Peer};

/// Most datagrams of an outbox that sends bags.
const LETTERS_MAX: usize = 256;

/// Datagrams that wait to be sent.
#[derive(Debug, Default)]
pub struct Bag {
    bytes: Vec<u8>,
    stretches: Vec<Stretch>,
    /// Receivers. A `Peer` is large and a client needs none, so they are stored apart.
    peers: Vec<Peer>,
    datagrams: usize,
    /// The datagram that was begun last.
    begun: Begun,
    /// Number of stretches sent.
    done: usize,
    /// True if datagrams are sent flow by flow, because a run ends where the flow changes.
    by_flow: bool,
    /// True if there is more than one flow.
    is_mixed: bool,
}

/// A datagram that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    start: usize,
    flow: u16,
    /// The index of its receiver in `peers`; none is the connected peer.
    to: Option<usize>,
}

/// Adjacent datagrams of one flow to one receiver, all as long as the first; only the last may be
/// shorter.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Begun,
    end: usize,
    each_bytes: usize,
    /// True if the last one is shorter, so the stretch takes no more.
    is_over: bool,
}

impl Bag {
    /// Returns an empty bag. With `by_flow`, datagrams of one flow are sent together, which pays if
    /// runs are one send.
    #[must_use]
    pub fn new(by_flow: bool) -> Bag {
        Bag { by_flow, ..Bag::default() }
    }

    /// Returns an outbox for bags. With `runs`, equally long datagrams to one peer are one send.
    #[must_use]
    pub fn outbox(runs: bool) -> Outbox {
        Outbox::new(LETTERS_MAX, LETTERS_MAX, runs)
    }

    /// Begins a datagram to the connected peer, or back `to` a sender. The caller appends its bytes
    /// to the vector returned, and calls `end`.
    #[inline]
    pub fn begin(&mut self, to: Option<&Peer>, flow: u16) -> &mut Vec<u8> {
        let to = to.map(|to| {
            if self.peers.last() != Some(to) {
                self.peers.push(*to);
            }
            self.peers.len() - 1
        });
        self.begun = Begun { start: self.bytes.len(), flow, to };
        &mut self.bytes
    }

    /// Ends the datagram that was begun last; returns its length in bytes.
    #[inline]
    pub fn end(&mut self) -> usize {
        let (begun, end) = (self.begun, self.bytes.len());
        let bytes = end - begun.start;
        self.datagrams += 1;
        if let Some(last) = self.stretches.last_mut() {
            let is_like = last.first.flow == begun.flow && last.first.to == begun.to;
            if is_like && !last.is_over && (1..=last.each_bytes).contains(&bytes) {
                last.end = end;
                last.is_over = bytes < last.each_bytes;
                return bytes;
            }
            self.is_mixed |= last.first.flow != begun.flow;
        }
        self.stretches.push(Stretch { first: begun, end, each_bytes: bytes, is_over: false });
        bytes
    }

    /// Removes the datagram that ended last.
    pub fn take_back(&mut self) {
        let Some(last) = self.stretches.last_mut() else { return };
        self.datagrams -= 1;
        self.bytes.truncate(self.begun.start);
        (last.end, last.is_over) = (self.begun.start, false);
        if last.first.start == self.begun.start {
            self.stretches.pop();
        }
    }

    /// Number of datagrams that wait, or waited when they were last sent.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams
    }

    /// True if there is no datagram.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// Bytes of all datagrams.
    #[inline]
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.stretches.clear();
        self.peers.clear();
        (self.datagrams, self.done, self.is_mixed) = (0, 0, false);
    }

    /// Sends the waiting datagrams. Returns the obstacle for the rest, if any.
    pub fn post(
        &mut self,
        outbox: &mut Outbox,
        socket: &Datagrams,
        calls: &Calls,
    ) -> Option<Obstacle> {
        if self.is_mixed && self.by_flow {
            self.stretches[self.done..]
                .sort_unstable_by_key(|one| (one.first.flow, one.first.start));
        }
        while self.done < self.stretches.len() {
            let mut letters = outbox.open();
            let mut flow = None;
            for stretch in &self.stretches[self.done..] {
                let Begun { start, flow: own, to } = stretch.first;
                if flow.replace(own).is_some_and(|flow| flow != own) {
                    letters.begin_run();
                }
                let to = to.and_then(|to| self.peers.get(to));
                if !letters.add_several(to, &self.bytes[start..stretch.end], stretch.each_bytes) {
                    break;
                }
            }
            let posted = letters.post(socket, calls);
            self.pass(posted.sent);
            if posted.obstacle.is_some() {
                return posted.obstacle;
            }
        }
        None
    }

    /// The waiting datagrams, in their order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.stretches[self.done..]
            .iter()
            .flat_map(|one| self.bytes[one.first.start..one.end].chunks(one.each_bytes.max(1)))
    }

    /// Marks `sent` more datagrams as sent; clears the bag once all are.
    pub fn pass(&mut self, mut sent: usize) {
        for stretch in &mut self.stretches[self.done..] {
            let bytes = stretch.end - stretch.first.start;
            let datagrams = bytes.div_ceil(stretch.each_bytes.max(1)).max(1);
            if sent < datagrams {
                stretch.first.start += sent * stretch.each_bytes;
                return;
            }
            sent -= datagrams;
            self.done += 1;
        }
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Inbox, SLOT_BYTES_MAX, Sizes, bind_columns};
    use protocol::udp::Header;

    #[test]
    fn what_is_taken_back_is_not_sent_and_the_rest_is_in_its_order() {
        let server = Datagrams::bind("127.0.0.1:0".parse().unwrap(), Sizes::default()).unwrap();
        let at = server.address().unwrap();
        let client = Datagrams::connect(at, Sizes::default()).unwrap();
        let (mut bag, mut outbox) = (Bag::default(), Bag::outbox(true));
        let (calls, mut inbox) = (Calls::default(), Inbox::new(64, SLOT_BYTES_MAX));
        let mut expected = Vec::new();
        for number in 0..1000_u16 {
            let bytes = &number.to_be_bytes()[..if number % 3 == 0 { 1 } else { 2 }];
            bag.begin(None, 0).extend_from_slice(bytes);
            assert_eq!(bag.end(), bytes.len());
            if number % 3 == 0 {
                bag.take_back();
            } else {
                expected.push(number.to_be_bytes().to_vec());
            }
        }
        assert_eq!((bag.len(), bag.total_bytes()), (expected.len(), 2 * expected.len()));
        assert_eq!(bag.stretches.len(), 1);
        assert_eq!(bag.post(&mut outbox, &client, &calls), None);
        assert!(bag.is_empty());
        let mut came = Vec::new();
        while server.receive(&mut inbox, &calls).datagrams > 0 {
            for datagram in inbox.datagrams() {
                came.push(datagram.bytes.to_vec());
                bag.begin(Some(datagram.peer), 0).extend_from_slice(datagram.bytes);
                bag.end();
            }
        }
        assert_eq!(came, expected);
        bag.begin(None, 0).extend_from_slice(&[0; 70_000]);
        bag.end();
        assert_eq!(bag.post(&mut outbox, &server, &calls), Some(Obstacle::TooLong));
        came.clear();
        while client.receive(&mut inbox, &calls).datagrams > 0 {
            came.extend(inbox.datagrams().map(|datagram| datagram.bytes.to_vec()));
        }
        assert_eq!(came, expected);
    }

    #[test]
    fn what_is_sent_in_parts_goes_on_where_it_stopped() {
        let server = Datagrams::bind("127.0.0.1:0".parse().unwrap(), Sizes::default()).unwrap();
        let at = server.address().unwrap();
        let client = Datagrams::connect(at, Sizes::default()).unwrap();
        let (calls, mut inbox) = (Calls::default(), Inbox::new(64, SLOT_BYTES_MAX));
        let texts = [&b"aa"[..], b"bb", b"cc", b"d", b"ee", b"", b"ff", b"ggg", b"hhh", b"ii"];
        for sent in 0..=texts.len() {
            let (mut bag, mut outbox) = (Bag::default(), Bag::outbox(true));
            for text in texts {
                bag.begin(None, 0).extend_from_slice(text);
                bag.end();
            }
            assert_eq!(bag.stretches.len(), 5, "{:?}", bag.stretches);
            bag.pass(sent / 2);
            bag.pass(sent - sent / 2);
            assert_eq!(bag.post(&mut outbox, &client, &calls), None);
            let mut came = Vec::new();
            while server.receive(&mut inbox, &calls).datagrams > 0 {
                came.extend(inbox.datagrams().map(|one| one.bytes.to_vec()));
            }
            assert_eq!(came, texts[sent..]);
        }
    }

    #[test]
    fn those_of_one_flow_are_sent_together_and_a_burst_ends_where_the_flow_changes() {
        let any = "127.0.0.1:0".parse().unwrap();
        let columns = bind_columns(any, 3, Sizes::default()).unwrap();
        let client = Datagrams::connect(columns[0].address().unwrap(), Sizes::default()).unwrap();
        let (calls, mut inbox) = (Calls::default(), Inbox::new(1, SLOT_BYTES_MAX));
        // True if sent by flow; and the number of datagrams in a column's first burst.
        for (by_flow, first) in [(true, 20), (false, 1)] {
            let (mut bag, mut outbox) = (Bag::new(by_flow), Bag::outbox(true));
            for number in 0..60_u16 {
                let flow = number % 3 + 1;
                let header = Header::request(number, flow).bytes();
                bag.begin(None, flow).extend_from_slice(&header);
                bag.end();
            }
            assert_eq!(bag.post(&mut outbox, &client, &calls), None);
            for (column, socket) in (0..).zip(&columns) {
                let mut came = Vec::new();
                while socket.receive(&mut inbox, &calls).datagrams > 0 {
                    let burst: Vec<Header> = inbox
                        .datagrams()
                        .filter_map(|one| Header::read(one.bytes))
                        .map(|(header, _)| header)
                        .collect();
                    assert!(!came.is_empty() || burst.len() == first, "{burst:?}");
                    came.extend(burst);
                }
                let expected: Vec<Header> =
                    (0..20).map(|nth| Header::request(nth * 3 + column, column + 1)).collect();
                assert_eq!(came, expected);
            }
        }
    }
}
