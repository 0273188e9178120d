//! A batch of datagrams that are written one after the other and sent together.
//!
//! ```text
//! bytes       | datagram | datagram | ...     datagrams, back to back
//! run         |---------------------|         equal length, flow and receiver: one send
//! ```
//!
//! Where: the generator batches requests, the null server batches answers; `net` sends both.
//! Invariant: datagrams are sent in the order in which they were written, except that `by_flow`
//! sorts them by flow. The batch itself has no size limit: the caller limits it.

use net::{Calls, Datagrams, Obstacle, Outbox, Peer};

/// Maximum number of datagrams that an outbox sends with one system call.
const OUTBOX_DATAGRAMS_MAX: usize = 256;

/// Datagrams that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct DatagramBatch {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The receivers. A `Run` stores an index into this vector, because a `Peer` is large.
    peers: Vec<Peer>,
    datagrams: usize,
    last_start: DatagramStart,
    runs_sent: usize,
    /// True if datagrams are sorted by flow before they are sent, so that fewer sends are needed.
    by_flow: bool,
    /// True if two adjacent runs have different flows.
    is_mixed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct DatagramStart {
    start: usize,
    flow: u16,
    /// Index of the receiver in `peers`; `None` means the connected peer.
    to: Option<usize>,
}

/// Adjacent datagrams of equal flow, receiver and length. Only the last datagram may be shorter.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: DatagramStart,
    end: usize,
    each_bytes: usize,
    /// True if no datagram can be added, because the last datagram is shorter than the others.
    is_over: bool,
}

impl DatagramBatch {
    /// Returns an empty batch. If `by_flow` is true, datagrams of the same flow are sent together.
    pub(crate) fn new(by_flow: bool) -> DatagramBatch {
        DatagramBatch { by_flow, ..DatagramBatch::default() }
    }

    /// Returns an outbox for batches. If `runs` is true, one system call can send a whole run.
    pub(crate) fn outbox(runs: bool) -> Outbox {
        Outbox::new(OUTBOX_DATAGRAMS_MAX, OUTBOX_DATAGRAMS_MAX, runs)
    }

    /// Begins a datagram to the peer `to`, or to the connected peer if `to` is `None`. The caller
    /// appends the datagram's bytes to the returned vector, and then calls `end`.
    #[inline]
    pub(crate) fn begin(&mut self, to: Option<&Peer>, flow: u16) -> &mut Vec<u8> {
        let to = to.map(|to| {
            if self.peers.last() != Some(to) {
                self.peers.push(*to);
            }
            self.peers.len() - 1
        });
        self.last_start = DatagramStart { start: self.bytes.len(), flow, to };
        &mut self.bytes
    }

    /// Ends the datagram that was begun last. Returns its length in bytes.
    #[inline]
    pub(crate) fn end(&mut self) -> usize {
        let (last_start, end) = (self.last_start, self.bytes.len());
        let bytes = end - last_start.start;
        self.datagrams += 1;
        if let Some(last) = self.runs.last_mut() {
            let is_same_run = last.first.flow == last_start.flow && last.first.to == last_start.to;
            if is_same_run && !last.is_over && (1..=last.each_bytes).contains(&bytes) {
                last.end = end;
                last.is_over = bytes < last.each_bytes;
                return bytes;
            }
            self.is_mixed |= last.first.flow != last_start.flow;
        }
        self.runs.push(Run { first: last_start, end, each_bytes: bytes, is_over: false });
        bytes
    }

    /// Removes the datagram that ended last.
    pub(crate) fn remove_last(&mut self) {
        let Some(last) = self.runs.last_mut() else { return };
        self.datagrams -= 1;
        self.bytes.truncate(self.last_start.start);
        (last.end, last.is_over) = (self.last_start.start, false);
        if last.first.start == self.last_start.start {
            self.runs.pop();
        }
    }

    /// Returns the number of datagrams. Sent datagrams are included until all datagrams are sent.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.datagrams
    }

    /// True if the batch contains no datagrams.
    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// Returns the number of bytes of all datagrams, including sent ones.
    #[inline]
    pub(crate) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all datagrams.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.peers.clear();
        (self.datagrams, self.runs_sent, self.is_mixed) = (0, 0, false);
    }

    /// Sends the waiting datagrams. If some could not be sent, returns the reason.
    pub(crate) fn post(
        &mut self,
        outbox: &mut Outbox,
        socket: &Datagrams,
        calls: &Calls,
    ) -> Option<Obstacle> {
        if self.is_mixed && self.by_flow {
            self.runs[self.runs_sent..]
                .sort_unstable_by_key(|one| (one.first.flow, one.first.start));
        }
        while self.runs_sent < self.runs.len() {
            let mut send_batch = outbox.open();
            let mut flow = None;
            for run in &self.runs[self.runs_sent..] {
                let DatagramStart { start, flow: own, to } = run.first;
                if flow.replace(own).is_some_and(|flow| flow != own) {
                    send_batch.begin_run();
                }
                let to = to.and_then(|to| self.peers.get(to));
                if !send_batch.add_several(to, &self.bytes[start..run.end], run.each_bytes) {
                    break;
                }
            }
            let posted = send_batch.post(socket, calls);
            self.mark_sent(posted.sent);
            if posted.obstacle.is_some() {
                return posted.obstacle;
            }
        }
        None
    }

    /// Returns the waiting datagrams in the order in which they are to be sent.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.runs[self.runs_sent..]
            .iter()
            .flat_map(|one| self.bytes[one.first.start..one.end].chunks(one.each_bytes.max(1)))
    }

    /// Marks `sent` more datagrams as sent. When all datagrams are sent, clears the batch.
    pub(crate) fn mark_sent(&mut self, mut sent: usize) {
        for run in &mut self.runs[self.runs_sent..] {
            let bytes = run.end - run.first.start;
            let datagrams = bytes.div_ceil(run.each_bytes.max(1)).max(1);
            if sent < datagrams {
                run.first.start += sent * run.each_bytes;
                return;
            }
            sent -= datagrams;
            self.runs_sent += 1;
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
        let (mut batch, mut outbox) = (DatagramBatch::default(), DatagramBatch::outbox(true));
        let (calls, mut inbox) = (Calls::default(), Inbox::new(64, SLOT_BYTES_MAX));
        let mut expected = Vec::new();
        for number in 0..1000_u16 {
            let bytes = &number.to_be_bytes()[..if number % 3 == 0 { 1 } else { 2 }];
            batch.begin(None, 0).extend_from_slice(bytes);
            assert_eq!(batch.end(), bytes.len());
            if number % 3 == 0 {
                batch.remove_last();
            } else {
                expected.push(number.to_be_bytes().to_vec());
            }
        }
        assert_eq!((batch.len(), batch.total_bytes()), (expected.len(), 2 * expected.len()));
        assert_eq!(batch.runs.len(), 1);
        assert_eq!(batch.post(&mut outbox, &client, &calls), None);
        assert!(batch.is_empty());
        let mut received = Vec::new();
        while server.receive(&mut inbox, &calls).datagrams > 0 {
            for datagram in inbox.datagrams() {
                received.push(datagram.bytes.to_vec());
                batch.begin(Some(datagram.peer), 0).extend_from_slice(datagram.bytes);
                batch.end();
            }
        }
        assert_eq!(received, expected);
        batch.begin(None, 0).extend_from_slice(&[0; 70_000]);
        batch.end();
        assert_eq!(batch.post(&mut outbox, &server, &calls), Some(Obstacle::TooLong));
        received.clear();
        while client.receive(&mut inbox, &calls).datagrams > 0 {
            received.extend(inbox.datagrams().map(|datagram| datagram.bytes.to_vec()));
        }
        assert_eq!(received, expected);
    }

    #[test]
    fn what_is_sent_in_parts_goes_on_where_it_stopped() {
        let server = Datagrams::bind("127.0.0.1:0".parse().unwrap(), Sizes::default()).unwrap();
        let at = server.address().unwrap();
        let client = Datagrams::connect(at, Sizes::default()).unwrap();
        let (calls, mut inbox) = (Calls::default(), Inbox::new(64, SLOT_BYTES_MAX));
        let texts = [&b"aa"[..], b"bb", b"cc", b"d", b"ee", b"", b"ff", b"ggg", b"hhh", b"ii"];
        for sent in 0..=texts.len() {
            let (mut batch, mut outbox) = (DatagramBatch::default(), DatagramBatch::outbox(true));
            for text in texts {
                batch.begin(None, 0).extend_from_slice(text);
                batch.end();
            }
            assert_eq!(batch.runs.len(), 5, "{:?}", batch.runs);
            batch.mark_sent(sent / 2);
            batch.mark_sent(sent - sent / 2);
            assert_eq!(batch.post(&mut outbox, &client, &calls), None);
            let mut received = Vec::new();
            while server.receive(&mut inbox, &calls).datagrams > 0 {
                received.extend(inbox.datagrams().map(|one| one.bytes.to_vec()));
            }
            assert_eq!(received, texts[sent..]);
        }
    }

    #[test]
    fn those_of_one_flow_are_sent_together_and_a_burst_ends_where_the_flow_changes() {
        let any = "127.0.0.1:0".parse().unwrap();
        let columns = bind_columns(any, 3, Sizes::default()).unwrap();
        let client = Datagrams::connect(columns[0].address().unwrap(), Sizes::default()).unwrap();
        let (calls, mut inbox) = (Calls::default(), Inbox::new(1, SLOT_BYTES_MAX));
        // `first` is the number of datagrams that the first receive call returns.
        for (by_flow, first) in [(true, 20), (false, 1)] {
            let (mut batch, mut outbox) =
                (DatagramBatch::new(by_flow), DatagramBatch::outbox(true));
            for number in 0..60_u16 {
                let flow = number % 3 + 1;
                let header = Header::request(number, flow).bytes();
                batch.begin(None, flow).extend_from_slice(&header);
                batch.end();
            }
            assert_eq!(batch.post(&mut outbox, &client, &calls), None);
            for (column, socket) in (0..).zip(&columns) {
                let mut received = Vec::new();
                while socket.receive(&mut inbox, &calls).datagrams > 0 {
                    let burst: Vec<Header> = inbox
                        .datagrams()
                        .filter_map(|one| Header::read(one.bytes))
                        .map(|(header, _)| header)
                        .collect();
                    assert!(!received.is_empty() || burst.len() == first, "{burst:?}");
                    received.extend(burst);
                }
                let expected: Vec<Header> =
                    (0..20).map(|nth| Header::request(nth * 3 + column, column + 1)).collect();
                assert_eq!(received, expected);
            }
        }
    }
}
