//! Executing the requests in a connection's input.
//!
//! Where: between the bytes a turn received and the replies it sends.
//! Invariant: a turn stops after `-R` requests, when its replies are enough for one write, or when
//! the input asks for more; what it did not use is executed next time, from the same byte on.

use protocol::{Request, Step};

use super::Connection;
use super::arrival::Fill;
use crate::column::Kit;
use crate::execute::{self, After};
use crate::limits::KEYS_TURN_MAX;

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

impl Connection {
    /// Executes the requests in `input`, appending replies to the turn's output. Why it stopped,
    /// and how many bytes it used.
    #[inline]
    pub(super) fn execute(&mut self, kit: &mut Kit, input: &[u8]) -> (Stop, usize) {
        let mut at = 0;
        let mut requests_left = kit.requests_turn_max;
        let mut keys_left = KEYS_TURN_MAX;
        loop {
            if let Some(arrival) = self.arrival {
                let (filled, used) = self.arrive(kit, arrival, &input[at..]);
                at += used;
                match filled {
                    Fill::Hungry => return (Stop::Hungry, at),
                    Fill::Wait => return (Stop::Wait, at),
                    Fill::Done(After::Close) => return (Stop::Close, at),
                    Fill::Done(_) => requests_left = requests_left.saturating_sub(1),
                }
            }
            if at < input.len() && (requests_left == 0 || keys_left == 0 || kit.is_full()) {
                kit.context.counters.conn_yields.add(u64::from(requests_left == 0));
                return (Stop::Enough, at);
            }
            match self.session.next(&input[at..]) {
                Step::Request(request, used) => {
                    at += used;
                    // Keys of one retrieval line are one request to `-R`.
                    match request {
                        Request::Get(get) if !get.last => keys_left -= 1,
                        _ => requests_left = requests_left.saturating_sub(1),
                    }
                    let after = execute::execute(&mut kit.context, &request, &mut kit.out);
                    if after == After::Close {
                        return (Stop::Close, at);
                    }
                }
                Step::Body { value_bytes, .. } if value_bytes as usize <= kit.log_value_bytes => {
                    return (Stop::Hungry, at);
                }
                Step::Body { request, header_bytes, value_bytes } => {
                    let header = &input[at..at + header_bytes];
                    at += header_bytes;
                    match execute::begin(&mut kit.context, &request, value_bytes) {
                        Ok(()) => self.expect(kit, header, value_bytes),
                        Err(reply) => self.session.swallow(value_bytes, reply),
                    }
                }
                Step::Skip(used) => at += used,
                Step::More => return (Stop::Hungry, at),
                Step::Close => return (Stop::Close, at),
            }
        }
    }
}
