//! Large values on their way in.
//!
//! Where: a storage command whose value is too long for the log gets a `store::Draft`, and the
//! socket is read straight into it.
//! Invariant: frames are taken as bytes arrive, never by the length a peer declares. When the
//! column's share is used up, the value that has not grown for longest gives way: its command fails
//! and its remaining bytes are skipped; nobody waits for it.

use store::{Column, Draft};

use super::Connection;
use crate::column::Kit;
use crate::execute::{self, After};
use crate::limits::{GIVE_WAY_MAX, STALLED_MS};

/// What became of a large value after some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// It lacks bytes.
    Hungry,
    /// It is whole and has been stored, or it failed; go on with the next request.
    Done(After),
}

/// One large value.
#[derive(Debug)]
struct Arrival {
    /// Its command line.
    header: Box<[u8]>,
    /// `None`: it gave way.
    draft: Option<Draft>,
    missing_bytes: usize,
    received_bytes: usize,
    moved_ms: u64,
}

/// A column's large values on their way in.
#[derive(Debug)]
pub(crate) struct Arrivals {
    all: Vec<Option<Arrival>>,
    free: Vec<u32>,
    /// Bytes received of all whose draft lives.
    bytes: usize,
    /// Over half of it only stalled ones give way, over all of it any.
    bytes_max: usize,
}

impl Arrivals {
    pub(crate) fn new(bytes_max: usize) -> Arrivals {
        Arrivals { all: Vec::new(), free: Vec::new(), bytes: 0, bytes_max }
    }

    fn add(&mut self, arrival: Arrival) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        });
        self.all[index as usize] = Some(arrival);
        index
    }

    /// Drops it.
    pub(crate) fn remove(&mut self, index: u32) {
        let taken = self.all[index as usize].take();
        self.free.push(index);
        if let Some(Arrival { draft: Some(_), received_bytes, .. }) = taken {
            self.bytes -= received_bytes;
        }
    }

    /// Where its next bytes go; empty when it lacks none or has given way.
    pub(crate) fn space(&mut self, index: u32, store: &mut Column, now_ms: u64) -> &mut [u8] {
        if self.bytes > self.bytes_max / 2 {
            let stalled_only = self.bytes <= self.bytes_max;
            self.give_way(index, stalled_only, now_ms);
        }
        let mut tries_left = GIVE_WAY_MAX;
        while self.is_refused(index, store) {
            if tries_left == 0 || !self.give_way(index, false, now_ms) {
                self.drop_draft(index);
                break;
            }
            tries_left -= 1;
        }
        match self.draft(index).map(|draft| draft.space(store)) {
            Some(Ok(space)) => space,
            _ => &mut [],
        }
    }

    fn draft(&mut self, index: u32) -> Option<&mut Draft> {
        self.all[index as usize].as_mut()?.draft.as_mut()
    }

    /// The store has no frame for its next bytes.
    fn is_refused(&mut self, index: u32, store: &mut Column) -> bool {
        self.draft(index).is_some_and(|draft| draft.space(store).is_err())
    }

    fn drop_draft(&mut self, index: u32) {
        if let Some(arrival) = self.all[index as usize].as_mut()
            && arrival.draft.take().is_some()
        {
            self.bytes -= arrival.received_bytes;
        }
    }

    /// `bytes` of `space` have been written.
    pub(crate) fn filled(&mut self, index: u32, bytes: usize, now_ms: u64) {
        let Some(arrival) = self.all[index as usize].as_mut() else { return };
        let Some(draft) = arrival.draft.as_mut() else { return };
        if bytes > 0 {
            draft.filled(bytes);
            arrival.missing_bytes -= bytes;
            arrival.received_bytes += bytes;
            arrival.moved_ms = now_ms;
            self.bytes += bytes;
        }
    }

    /// Drops the draft that has not grown for longest, not that of `except`; with `stalled_only`,
    /// only if it has stood for `STALLED_MS`. False when there is none.
    fn give_way(&mut self, except: u32, stalled_only: bool, now_ms: u64) -> bool {
        let except = except as usize;
        let oldest = self
            .all
            .iter_mut()
            .enumerate()
            .filter_map(|(at, arrival)| arrival.as_mut().filter(|_| at != except))
            .filter(|arrival| arrival.draft.is_some() && arrival.received_bytes > 0)
            .min_by_key(|arrival| arrival.moved_ms);
        let Some(oldest) = oldest else { return false };
        if stalled_only && now_ms.saturating_sub(oldest.moved_ms) < STALLED_MS {
            return false;
        }
        oldest.draft = None;
        self.bytes -= oldest.received_bytes;
        true
    }
}

impl Connection {
    /// From here on, input is the value of the command in `header`.
    pub(super) fn expect(&mut self, kit: &mut Kit, header: &[u8], value_bytes: u32) {
        self.arrival = Some(kit.arrivals.add(Arrival {
            header: header.into(),
            draft: Some(kit.context.store.draft(value_bytes)),
            missing_bytes: value_bytes as usize,
            received_bytes: 0,
            moved_ms: kit.now_ms,
        }));
    }

    /// Moves `input` into the value it belongs to, and carries out the command when the value and
    /// its line end are there. What became of it, and how many bytes it used.
    pub(super) fn arrive(&mut self, kit: &mut Kit, index: u32, input: &[u8]) -> (Fill, usize) {
        let mut used = 0;
        while used < input.len() {
            let space = kit.arrivals.space(index, &mut kit.context.store, kit.now_ms);
            let bytes = space.len().min(input.len() - used);
            if bytes == 0 {
                break;
            }
            space[..bytes].copy_from_slice(&input[used..used + bytes]);
            kit.arrivals.filled(index, bytes, kit.now_ms);
            used += bytes;
        }
        let Some(arrival) = kit.arrivals.all[index as usize].as_mut() else {
            return (Fill::Hungry, used);
        };
        if arrival.draft.is_none() {
            let missing = u32::try_from(arrival.missing_bytes).unwrap_or(u32::MAX);
            let answer = execute::give_up(&mut kit.context, &arrival.header);
            self.session.swallow(missing, answer);
            self.arrival = None;
            kit.arrivals.remove(index);
            return (Fill::Done(After::Continue), used);
        }
        if arrival.missing_bytes > 0 {
            return (Fill::Hungry, used);
        }
        let Some(&line_end) = input[used..].first_chunk::<2>() else {
            return (Fill::Hungry, used);
        };
        used += line_end.len();
        let draft = arrival.draft.take();
        kit.arrivals.bytes -= arrival.received_bytes;
        let header = std::mem::take(&mut arrival.header);
        self.arrival = None;
        kit.arrivals.remove(index);
        let Some(draft) = draft else { return (Fill::Done(After::Continue), used) };
        let after =
            execute::execute_with_draft(&mut kit.context, &header, draft, line_end, &mut kit.out);
        (Fill::Done(after), used)
    }
}
