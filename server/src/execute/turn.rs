//! The requests of one turn, executed in their order.
//!
//! Where: between the bytes a connection received and the replies it sends.
//! Invariant: a turn stops after `-R` requests, when its replies are enough for one write, when a
//! request must wait, or when the input asks for more; what it did not use is executed next time,
//! from the same byte on.
//! Reading ahead changes only when memory is asked for. The requests of a batch are read; then the
//! index lines of all their keys are prefetched, then their items; then the requests are executed
//! one by one. So the batch waits for memory about twice, and not twice for each key.

use protocol::{Only, Request, Session, Step, Store};
use store::Prefetched;

use super::put::{self, Arrived};
use super::{After, Context, execute_hashed, get, meta};
use crate::limits::{KEYS_TURN_MAX, OUT_BYTES_MAX, REQUESTS_AHEAD, STATS_REQUESTS};
use crate::out::Out;

/// What a turn may still do.
#[derive(Debug)]
pub struct Budget {
    requests: u32,
    keys: usize,
    reply_bytes_max: usize,
}

/// Why a turn's execution stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// What is left is not a whole request.
    Hungry,
    /// Enough for one turn; there may be more to execute.
    Enough,
    /// The connection ends here.
    Close,
    /// At a storage command whose value is not all here: the session says so once more.
    Body,
    /// At a request that must wait for room in the store; the same again, a little later.
    Wait,
}

/// A request that has been read and not executed.
struct Ahead<'i> {
    request: Request<'i>,
    hash: Option<Prefetched>,
}

impl Budget {
    /// `requests` requests, and `reply_bytes_max` bytes of replies or, if less, `OUT_BYTES_MAX`.
    #[inline]
    #[must_use]
    pub fn new(requests: u32, reply_bytes_max: usize) -> Budget {
        let reply_bytes_max = reply_bytes_max.min(OUT_BYTES_MAX);
        Budget { requests, keys: KEYS_TURN_MAX, reply_bytes_max }
    }

    /// Keys of one retrieval line are one request to `-R`, and `stats` is many.
    #[inline]
    fn spend(&mut self, request: &Request<'_>) {
        match request {
            Request::Get(get) if get.form.is_continued() => {
                self.keys = self.keys.saturating_sub(1);
            }
            Request::Stats { .. } => {
                self.requests = self.requests.saturating_sub(STATS_REQUESTS);
            }
            _ => self.spend_request(),
        }
    }

    /// A request whose value came by itself.
    #[inline]
    pub(crate) fn spend_request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Leaves one request at most.
    pub(crate) fn spend_all_but_one(&mut self) {
        self.requests = self.requests.min(1);
    }

    #[inline]
    fn is_spent(&self, out: &Out) -> bool {
        let replied = out.buf.len() >= self.reply_bytes_max || out.is_full();
        self.requests == 0 || self.keys == 0 || replied
    }
}

/// Executes the requests in `input` from byte `at` on, appending replies to `out`. Why it stopped,
/// and at which byte.
#[inline]
pub fn run(
    context: &mut Context,
    session: &mut Session,
    (input, at): (&[u8], usize),
    budget: &mut Budget,
    out: &mut Out,
) -> (Stopped, usize) {
    // A plain request alone: there is nothing to read ahead while its memory comes.
    if at == 0
        && let Some(only) = session.only(input)
    {
        let after = match only {
            Only::Get(request) => get::get(context, &request, None, out),
            Only::MetaValue(key) => meta::get_value(context, key, None, out),
            Only::Set(request) => set(context, &request, out),
        };
        return match after {
            After::Wait => (Stopped::Wait, 0),
            _ => (Stopped::Hungry, input.len()),
        };
    }
    run_any(context, session, (input, at), budget, out)
}

#[inline(never)]
fn set(context: &mut Context, request: &Store<'_>, out: &mut Out) -> After {
    put::store(context, request, None, Arrived::here(request.value, request.terminated), out)
}

#[inline(never)]
fn run_any(
    context: &mut Context,
    session: &mut Session,
    (input, mut at): (&[u8], usize),
    budget: &mut Budget,
    out: &mut Out,
) -> (Stopped, usize) {
    loop {
        let (rest, before) = (&input[at..], session.clone());
        let (first, used) = match session.next_get(rest) {
            Some((request, used)) => (Request::Get(request), used),
            None => match session.next(rest) {
                Step::Request(request, used) => (request, used),
                Step::Skip(used) => {
                    at += used;
                    continue;
                }
                Step::More => return (Stopped::Hungry, at),
                Step::Close => return (Stopped::Close, at),
                Step::Body { .. } => return (Stopped::Body, at),
            },
        };
        // Nor is there where any other request is alone.
        if used == input.len() && at == 0 {
            return match execute_hashed(context, &first, None, out) {
                After::Close => (Stopped::Close, at),
                After::Continue | After::Flush => (Stopped::Hungry, input.len()),
                After::Wait => {
                    *session = before;
                    (Stopped::Wait, at)
                }
            };
        }
        let batch = Batch { before, from: at, input };
        match batch.run(context, session, (first, used), budget, out) {
            (None, read_to) => at = read_to,
            (Some(stopped), stopped_at) => return (stopped, stopped_at),
        }
    }
}

/// Where a batch starts, and the parser as it stood there: to come back to.
struct Batch<'i> {
    before: Session,
    from: usize,
    input: &'i [u8],
}

impl<'i> Batch<'i> {
    /// Reads on behind the `first` request, and executes what was read. Why that was the end of
    /// the turn, if it was; and where.
    #[inline(never)]
    fn run(
        self,
        context: &mut Context,
        session: &mut Session,
        (first, used): (Request<'i>, usize),
        budget: &mut Budget,
        out: &mut Out,
    ) -> (Option<Stopped>, usize) {
        let mut ahead: [Option<Ahead<'i>>; REQUESTS_AHEAD] = std::array::from_fn(|_| None);
        let (mut read, mut at) = (0, self.from + used);
        let mut next = Some(first);
        for place in &mut ahead {
            let Some(request) = next.or_else(|| read_one(session, self.input, &mut at)) else {
                break;
            };
            next = None;
            let hash = key(&request).map(|key| context.store.prefetch(key));
            *place = Some(Ahead { request, hash });
            read += 1;
        }
        for hash in ahead[..read].iter().flatten().filter_map(|ahead| ahead.hash) {
            context.store.prefetch_item(hash);
        }
        for (executed, ahead) in ahead[..read].iter().flatten().enumerate() {
            if budget.is_spent(out) {
                context.counters.conn_yields.add(u64::from(budget.requests == 0));
                return (Some(Stopped::Enough), self.rewind(session, executed));
            }
            budget.spend(&ahead.request);
            let after = match &ahead.request {
                Request::Get(request) => get::get(context, request, ahead.hash, out),
                request => execute_hashed(context, request, ahead.hash, out),
            };
            match after {
                After::Continue | After::Flush => {}
                After::Close => return (Some(Stopped::Close), at),
                After::Wait => return (Some(Stopped::Wait), self.rewind(session, executed)),
            }
        }
        (None, at)
    }

    /// Sets the parser behind the requests that have been executed, and says where that is.
    #[cold]
    fn rewind(self, session: &mut Session, executed: usize) -> usize {
        let mut at = self.from;
        *session = self.before;
        for _ in 0..executed {
            if read_one(session, self.input, &mut at).is_none() {
                break;
            }
        }
        at
    }
}

/// The next request from `at` on, if there is a whole one.
#[inline(always)]
fn read_one<'i>(session: &mut Session, input: &'i [u8], at: &mut usize) -> Option<Request<'i>> {
    while *at < input.len() {
        let rest = &input[*at..];
        if let Some((request, used)) = session.next_get(rest) {
            *at += used;
            return Some(Request::Get(request));
        }
        match session.next(rest) {
            Step::Request(request, used) => {
                *at += used;
                return Some(request);
            }
            Step::Skip(used) => *at += used,
            Step::More | Step::Close | Step::Body { .. } => return None,
        }
    }
    None
}

/// The key that `request` looks up.
#[inline]
pub(crate) fn key<'i>(request: &Request<'i>) -> Option<&'i [u8]> {
    match *request {
        Request::Get(get) => Some(get.key),
        Request::Store(store) => Some(store.key),
        Request::Delete(delete) => Some(delete.key),
        Request::Touch { key, .. } => Some(key),
        Request::Delta(delta) => Some(delta.key),
        // A key in base64 is looked up decoded: then only the prefetch is wasted.
        Request::Meta(meta) => Some(meta.key),
        _ => None,
    }
}
