//! Bursts: the usual case of a closed loop, in which many requests are drawn and written at once.
//!
//! Where: the sending half tries a burst first when a line has tokens.
//! Invariant: a burst sends the requests that would otherwise be drawn and sent one by one. Bursts
//! need a workload that draws requests of one key, a single server, and no `churn_requests`.
//! Source: none. Without bursts a GET costs 46 to 74 % more instructions (`bench drive` under
//! callgrind, 32 requests in flight, all four protocols).

use super::super::messages::ReceivingHalf;
use super::super::pending::{Cause, Pick, Sent};
use super::super::plan::DriveError;
use super::super::score::DriveState;
use super::lines::Phase;
use super::{BURST_MAX, Outward, RequestState, Source};
use crate::wire::WireRequest;
use crate::workload::{VERBS, Verb};

/// The requests of a burst, in memory that all bursts reuse.
#[derive(Debug)]
pub(super) struct Picks([Pick; BURST_MAX]);

impl Picks {
    pub(super) fn new() -> Picks {
        Picks([Pick { verb: Verb::Get, key: 0 }; BURST_MAX])
    }
}

impl Outward {
    /// Sends at most `count` requests. Returns the number of sent requests, or 0 if the next
    /// request cannot be part of a burst.
    #[inline]
    pub(super) fn burst(
        &mut self,
        line: u32,
        count: u32,
        now_ns: u64,
        state: &mut DriveState,
        receiver: &mut impl ReceivingHalf,
    ) -> Result<usize, DriveError> {
        let is_plain = self.targets.len() == 1 && self.churn_requests.is_none();
        if !is_plain || self.request_state != RequestState::NotDrawn || self.is_ended {
            return Ok(0);
        }
        let (Source::Stream(stream), Some(own)) =
            (&mut self.source, self.lines.get_mut(line as usize))
        else {
            return Ok(0);
        };
        let accepts = own.accepts();
        let Phase::Up(_, out) = &mut own.phase else { return Ok(0) };
        if !accepts {
            return Ok(0);
        }
        let most = usize::try_from(self.requests_left.min(count.into())).unwrap_or(BURST_MAX);
        let [.., high, low] = own.next.to_be_bytes();
        let first = u16::from_be_bytes([high, low]);
        let (mut number, mut counts, mut made) = (first, [0; VERBS.len()], 0);
        let before = out.total_bytes();
        for slot in self.picks.0.iter_mut().take(most) {
            if !out.has_room() {
                break;
            }
            let Some((verb, key)) = stream.pick() else { break };
            let (value_bytes, exptime_s) = if verb.writes() { stream.sizes(key) } else { (0, 0) };
            let part = WireRequest { verb, keys: &[key], value_bytes, exptime_s, number };
            let flow = self.flows.next(0, key, &self.names, &mut self.key);
            self.writer.write(&part, out.begin(number, flow));
            if !out.end() {
                return Err(DriveError::TooLarge { value_bytes, keys: 1 });
            }
            *slot = Pick { verb, key };
            counts[verb as usize] += 1;
            number = number.wrapping_add(1);
            made += 1;
        }
        if made == 0 {
            return Ok(0);
        }
        let bytes = out.total_bytes() - before;
        let more = u32::try_from(made).unwrap_or(0);
        own.next = own.next.wrapping_add(more);
        own.sent += u64::from(more);
        self.requests_left -= u64::from(more);
        self.outstanding += u64::from(more);
        state.score.sent_at_once(&counts);
        state.score.tally.sent_bytes += bytes as u64;
        let (intended_ns, sent_ns, cause) = (now_ns, now_ns, Cause::Token);
        let (verb, key) = (Verb::Get, 0);
        let sent =
            Sent { number: first, verb, parts: 1, keys: 1, key, intended_ns, sent_ns, cause };
        receiver.burst(line, &sent, &self.picks.0[..made], state);
        self.mark_dirty(line);
        Ok(made)
    }
}
