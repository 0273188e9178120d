//! Executing the requests in a connection's input.
//!
//! Where: between the bytes a turn received and the replies it sends.
//! Invariant: a turn stops after `-R` requests, when its replies are enough for one write, or when
//! the input asks for more; what it did not use is executed next time, from the same byte on.
//! Reading ahead changes nothing but when memory is asked for: the requests of a batch are read,
//! the index lines of their keys prefetched, then their items, and then one after the other is
//! executed, so that the batch waits for memory about twice and not twice for each key.

use protocol::{Get, GetForm, Request, Session, Step};
use store::Prefetched;

use super::Connection;
use super::arrival::Fill;
use crate::column::Kit;
use crate::execute::{self, After};
use crate::limits::{KEYS_TURN_MAX, REQUESTS_AHEAD};

/// Why a turn's execution stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// What is left is not a whole request.
    Hungry,
    /// Enough for one turn; there may be more to execute.
    Enough,
    /// There is no frame for a large value's next bytes; the same input again, a little later.
    Wait,
    /// The connection ends here.
    Close,
}

/// A request that has been read and not executed.
struct Ahead<'i> {
    request: Request<'i>,
    key: Option<Prefetched>,
    /// Where it starts, and the parser as it stood there: to come back to.
    from: usize,
    session: Session,
}

/// What a turn may still do.
struct Budget {
    requests: u32,
    keys: usize,
}

impl Budget {
    /// Keys of one retrieval line are one request to `-R`.
    #[inline]
    fn spend(&mut self, request: &Request<'_>) {
        match request {
            Request::Get(Get { form: GetForm::Text { last: false, .. }, .. }) => {
                self.keys = self.keys.saturating_sub(1);
            }
            _ => self.requests = self.requests.saturating_sub(1),
        }
    }

    #[inline]
    fn is_spent(&self) -> bool {
        self.requests == 0 || self.keys == 0
    }
}

impl Connection {
    /// Executes the requests in `input`, appending replies to the turn's output. Why it stopped,
    /// and how many bytes it used.
    pub(super) fn execute(&mut self, kit: &mut Kit, input: &[u8]) -> (Stop, usize) {
        let mut at = 0;
        let mut budget = Budget { requests: kit.requests_turn_max, keys: KEYS_TURN_MAX };
        loop {
            if let Some(arrival) = self.arrival {
                let (filled, used) = self.arrive(kit, arrival, &input[at..]);
                at += used;
                match filled {
                    Fill::Hungry => return (Stop::Hungry, at),
                    Fill::Wait => return (Stop::Wait, at),
                    Fill::Done(After::Close) => return (Stop::Close, at),
                    Fill::Done(_) => budget.requests = budget.requests.saturating_sub(1),
                }
            }
            let mut ahead = [const { None }; REQUESTS_AHEAD];
            let (after, read_to) = self.read_ahead(kit, input, at, &mut ahead);
            if let Some((stop, from)) = self.execute_ahead(kit, &ahead, &mut budget) {
                return (stop, from);
            }
            at = read_to;
            match after {
                None | Some(Step::Request(..) | Step::Skip(_)) => {}
                Some(Step::More) => return (Stop::Hungry, at),
                Some(Step::Close) => return (Stop::Close, at),
                Some(Step::Body { value_bytes, .. })
                    if value_bytes as usize <= kit.log_value_bytes =>
                {
                    return (Stop::Hungry, at);
                }
                Some(Step::Body { request, header_bytes, value_bytes, end_bytes }) => {
                    let header = &input[at..at + header_bytes];
                    at += header_bytes;
                    match execute::begin(&mut kit.context, &request, value_bytes) {
                        Ok(()) => self.expect(kit, header, value_bytes, end_bytes),
                        Err(answer) => {
                            let bytes = u64::from(value_bytes) + u64::from(end_bytes);
                            self.session.swallow(bytes, answer);
                        }
                    }
                }
            }
        }
    }

    /// Reads requests from `at` on into `ahead` and prefetches what they will look at. The step
    /// that ended the batch, if it is full for another reason; and where it ends.
    #[inline]
    fn read_ahead<'i>(
        &mut self,
        kit: &Kit,
        input: &'i [u8],
        mut at: usize,
        ahead: &mut [Option<Ahead<'i>>; REQUESTS_AHEAD],
    ) -> (Option<Step<'i>>, usize) {
        let mut after = None;
        let mut read = 0;
        while read < ahead.len() {
            let session = self.session.clone();
            match self.session.next(&input[at..]) {
                Step::Request(request, used) => {
                    let from = at;
                    at += used;
                    // A single request finds nothing to do while its memory comes.
                    let alone = read == 0 && at == input.len();
                    let key = if alone { None } else { key(&request) };
                    let key = key.map(|key| kit.context.store.prefetch(key));
                    ahead[read] = Some(Ahead { request, key, from, session });
                    read += 1;
                    if at == input.len() {
                        break;
                    }
                }
                Step::Skip(used) => at += used,
                step => {
                    after = Some(step);
                    break;
                }
            }
        }
        for key in ahead[..read].iter().flatten().filter_map(|ahead| ahead.key) {
            kit.context.store.prefetch_item(key);
        }
        (after, at)
    }

    /// Executes what has been read. If the turn ends within it: why, and where.
    #[inline]
    fn execute_ahead(
        &mut self,
        kit: &mut Kit,
        ahead: &[Option<Ahead<'_>>; REQUESTS_AHEAD],
        budget: &mut Budget,
    ) -> Option<(Stop, usize)> {
        for ahead in ahead.iter().map_while(Option::as_ref) {
            if budget.is_spent() || kit.is_full() {
                kit.context.counters.conn_yields.add(u64::from(budget.requests == 0));
                self.session = ahead.session.clone();
                return Some((Stop::Enough, ahead.from));
            }
            budget.spend(&ahead.request);
            let after =
                execute::execute_hashed(&mut kit.context, &ahead.request, ahead.key, &mut kit.out);
            if after == After::Close {
                return Some((Stop::Close, ahead.from));
            }
        }
        None
    }
}

/// The key that `request` will look up.
#[inline]
pub(super) fn key<'i>(request: &Request<'i>) -> Option<&'i [u8]> {
    match *request {
        Request::Get(get) => Some(get.key),
        Request::Store(store) => Some(store.key),
        Request::Delete(delete) => Some(delete.key),
        Request::Touch { key, .. } => Some(key),
        Request::Delta(delta) => Some(delta.key),
        // One in base64 is looked up decoded: the hint is wasted, nothing else.
        Request::Meta(meta) => Some(meta.key),
        _ => None,
    }
}
