//! Executes the requests of several inputs in order, and reads ahead over them together.
//!
//! Where: after a loop has received bytes, and before it sends the replies.
//! Invariant: each input is executed from the byte at which its execution last stopped, and each
//! request once. An input ends before the next input begins. Reading ahead changes only when memory
//! is fetched: first the requests of a window (at most `REQUESTS_AHEAD`) are read and the index
//! lines of their keys prefetched; then the items of these keys are prefetched; then the requests
//! are executed one by one. So a window waits for memory about twice, not once per key.

use arrayvec::ArrayVec;
use protocol::{Request, Session, Step};
use store::PrefetchedHash;

use crate::budget::{Budget, StopReason};
use crate::executor::Executor;
use crate::limits::REQUESTS_AHEAD;
use crate::turn::TurnState;

/// Bytes received by one connection or in one datagram.
#[derive(Debug)]
pub struct Input<'i> {
    /// The input's number, with which `Inputs::begin` and `Inputs::end` are called.
    pub number: usize,
    /// All bytes of the input.
    pub bytes: &'i [u8],
    /// Number of bytes whose requests have been executed already.
    pub at: usize,
    /// The parser's state after the first `at` bytes.
    pub session: Session,
}

/// The source of a batch's inputs, which also receives their results.
pub trait Inputs<'i, E> {
    /// Returns the next input. `None` if no input is left.
    fn next(&mut self) -> Option<Input<'i>>;

    /// Begins the execution of an input. Returns its budget.
    fn begin(&mut self, number: usize, turn: &mut TurnState<E>) -> Budget;

    /// Ends an input. The implementation sends the input's replies, or marks where they end.
    fn end(&mut self, number: usize, end: End<'_>, turn: &mut TurnState<E>);
}

/// The end of an input's execution.
#[derive(Debug)]
pub struct End<'e> {
    /// The reason why execution stopped.
    pub stopped: StopReason,
    /// Number of bytes whose requests have been executed.
    pub at: usize,
    /// The parser's state after the first `at` bytes.
    pub session: &'e Session,
    /// The remaining budget of the input.
    pub budget: &'e mut Budget,
}

struct PendingRequest<'i> {
    request: Request<'i>,
    hash: Option<PrefetchedHash>,
}

/// The requests of one input in a window.
struct Part<'i> {
    number: usize,
    bytes: &'i [u8],
    /// The byte at which the requests of this part begin, and the parser's state there.
    from: usize,
    before: Session,
    /// True if earlier requests of the input were in the previous window.
    goes_on: bool,
    /// The position in the window after the input's last request.
    behind: usize,
    /// The reason why the input ends after these requests, and the byte at which it ends. `None` if
    /// the window was full before the input ended.
    ends: Option<(StopReason, usize)>,
    /// The parser's state after the requests of this part.
    session: Session,
}

/// The requests that are read ahead together.
struct Window<'i> {
    ahead: ArrayVec<PendingRequest<'i>, REQUESTS_AHEAD>,
    parts: ArrayVec<Part<'i>, REQUESTS_AHEAD>,
}

/// Executes the requests of all `inputs`.
pub fn run<'i, E: Executor, I: Inputs<'i, E>>(turn: &mut TurnState<E>, inputs: &mut I) {
    let mut reading = None;
    let mut budget = Budget::none();
    loop {
        let mut window = Window { ahead: ArrayVec::new(), parts: ArrayVec::new() };
        window.read(&turn.executor, inputs, &mut reading);
        if window.parts.is_empty() {
            return;
        }
        window.execute(turn, inputs, &mut reading, &mut budget);
    }
}

impl<'i> Window<'i> {
    /// Reads requests until the window is full or no input is left. Begins with the remaining bytes
    /// of `reading`, the input that was being read when the last window became full.
    #[inline(always)]
    fn read<E: Executor, I: Inputs<'i, E>>(
        &mut self,
        executor: &E,
        inputs: &mut I,
        reading: &mut Option<Input<'i>>,
    ) {
        while !self.ahead.is_full() && !self.parts.is_full() {
            let goes_on = reading.is_some();
            let Some(input) = reading.take().or_else(|| inputs.next()) else { break };
            let Input { number, bytes, at: from, session: before } = input;
            let (mut at, mut session) = (from, before.clone());
            let stopped = self.read_input(executor, bytes, &mut at, &mut session);
            let ends = stopped.map(|stopped| (stopped, at));
            if ends.is_none() {
                let session = session.clone();
                *reading = Some(Input { number, bytes, at, session });
            }
            let behind = self.ahead.len();
            self.parts.push(Part { number, bytes, from, before, goes_on, behind, ends, session });
        }
        for hash in self.ahead.iter().filter_map(|ahead| ahead.hash) {
            executor.prefetch_item(hash);
        }
    }

    /// Reads requests of one input until the window is full, and then returns `None`. If the input
    /// ends first, returns the reason.
    #[inline(always)]
    fn read_input<E: Executor>(
        &mut self,
        executor: &E,
        bytes: &'i [u8],
        at: &mut usize,
        session: &mut Session,
    ) -> Option<StopReason> {
        loop {
            if *at == bytes.len() && !session.owes_answer() {
                return Some(StopReason::Hungry);
            }
            if self.ahead.is_full() {
                return None;
            }
            // A get is written straight into its place in the window.
            if let Some((get, used)) = session.next_get(&bytes[*at..]) {
                *at += used;
                let hash = executor.prefetch(get.key);
                self.ahead.push(PendingRequest { request: Request::Get(get), hash });
                continue;
            }
            match read_other(bytes, at, session) {
                Ok(Some(request)) => self.push(executor, request),
                Ok(None) => {}
                Err(stopped) => return Some(stopped),
            }
        }
    }

    /// Adds a request. The caller has checked that the window is not full.
    #[inline(always)]
    fn push<E: Executor>(&mut self, executor: &E, request: Request<'i>) {
        let hash = key(&request).and_then(|key| executor.prefetch(key));
        self.ahead.push(PendingRequest { request, hash });
    }

    /// Executes the requests of the window. `budget` is the budget of the window's first input if
    /// the previous window began that input. On return, `budget` is that of the last input.
    #[inline(always)]
    fn execute<E: Executor, I: Inputs<'i, E>>(
        &mut self,
        turn: &mut TurnState<E>,
        inputs: &mut I,
        reading: &mut Option<Input<'i>>,
        budget: &mut Budget,
    ) {
        let mut first = 0;
        for part in &mut self.parts {
            if !part.goes_on {
                *budget = inputs.begin(part.number, turn);
            }
            let ahead = &self.ahead[first..part.behind];
            first = part.behind;
            let (stopped, at) = match (execute_part(ahead, turn, budget), part.ends) {
                (None, None) => continue,
                (None, Some(ends)) => ends,
                (Some((stopped, executed)), ends) => {
                    if ends.is_none() {
                        *reading = None;
                    }
                    (stopped, part.go_back(executed))
                }
            };
            inputs.end(part.number, End { stopped, at, session: &part.session, budget }, turn);
        }
    }
}

/// Executes the requests of one part. If execution stops at a request, returns the reason and the
/// number of requests executed before that request; `None` if all requests are executed.
#[inline(always)]
fn execute_part<E: Executor>(
    ahead: &[PendingRequest<'_>],
    turn: &mut TurnState<E>,
    budget: &mut Budget,
) -> Option<(StopReason, usize)> {
    let TurnState { executor, out, counters, .. } = turn;
    for (executed, ahead) in ahead.iter().enumerate() {
        if budget.is_spent(out) {
            counters.conn_yields.add(u64::from(budget.has_no_requests()));
            return Some((StopReason::Enough, executed));
        }
        budget.spend(&ahead.request);
        let step = executor.execute(&ahead.request, ahead.hash, out);
        if let Some((stopped, is_used)) = StopReason::after(step) {
            return Some((stopped, executed + usize::from(is_used)));
        }
    }
    None
}

impl Part<'_> {
    /// Sets the parser back to its state after `executed` requests. Returns the position at which
    /// these requests end.
    #[cold]
    fn go_back(&mut self, executed: usize) -> usize {
        let mut at = self.from;
        self.session.clone_from(&self.before);
        let mut read = 0;
        while read < executed {
            match read_other(self.bytes, &mut at, &mut self.session) {
                Ok(request) => read += usize::from(request.is_some()),
                Err(_) => break,
            }
        }
        at
    }
}

/// Reads the next request of any kind. Returns `None` after skipped bytes: call again then.
#[inline(always)]
fn read_other<'i>(
    bytes: &'i [u8],
    at: &mut usize,
    session: &mut Session,
) -> Result<Option<Request<'i>>, StopReason> {
    match session.next(&bytes[*at..]) {
        Step::Request(request, used) => {
            *at += used;
            Ok(Some(request))
        }
        Step::Skip(used) => {
            *at += used;
            Ok(None)
        }
        Step::More => Err(StopReason::Hungry),
        Step::Close => Err(StopReason::Close),
        Step::Body { .. } => Err(StopReason::Body),
    }
}

#[inline]
fn key<'i>(request: &Request<'i>) -> Option<&'i [u8]> {
    match *request {
        Request::Get(get) => Some(get.key),
        Request::Store(store) => Some(store.key),
        Request::Delete(delete) => Some(delete.key),
        Request::Touch { key, .. } => Some(key),
        Request::Delta(delta) => Some(delta.key),
        // If the key is in base64, the store looks up the decoded key. The prefetch for the encoded
        // key is then useless, but harmless.
        Request::Meta(meta) => Some(meta.key),
        _ => None,
    }
}
