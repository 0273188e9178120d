//! An item of the model, and an outcome of a request, which a reply may show or contradict.
//!
//! Invariant: a reply shows an outcome only if each field of the reply is that of the outcome, or
//! is not known to the model.

use super::request::{Answer, Bytes, Reply, Seen};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) exptime: u32,
    /// The CAS unique; 0 if the store keeps none, and `None` if no answer has shown it.
    pub(crate) cas: Option<u64>,
    pub(crate) binary: bool,
    pub(crate) fetched: bool,
    pub(crate) stale: bool,
    pub(crate) won: bool,
    /// The second of the item's last recorded use.
    pub(crate) used: u32,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) reply: Reply,
    pub(crate) item: Option<Item>,
    /// True if the request gives the item a CAS unique that the store chooses.
    pub(crate) fresh: bool,
}

impl Outcome {
    pub(super) fn new(reply: Reply, item: Option<Item>) -> Self {
        Self { reply, item, fresh: false }
    }

    /// True if `reply` shows this outcome. The item then gets the CAS unique that `reply` shows.
    pub(crate) fn agrees(&mut self, reply: &Reply) -> bool {
        if let (Ok(due), Ok(seen)) = (&mut self.reply, reply) {
            if let Some(item) = &mut self.item
                && item.cas.is_none()
                && let (Some(due), Some(seen)) = (due.cas_mut(), seen.cas())
            {
                (*due, item.cas) = (seen, Some(seen));
            }
            match (due, seen) {
                (due @ Answer::Hit(_), Answer::Touched) => *due = Answer::Touched,
                (Answer::Hit(due), Answer::Hit(seen)) => due.show(seen),
                _ => {}
            }
        }
        self.reply == *reply
    }
}

impl Seen {
    /// Removes the fields that `seen` does not show, and adopts the uses if `seen` may show them.
    fn show(&mut self, seen: &Self) {
        if let (Some(due), Some(seen)) = (&mut self.meta, &seen.meta) {
            let may_be = match (due.uses, seen.uses) {
                (Some((due, truth)), Some((fetched, idle))) => {
                    let error_max = if truth <= 8192 { 0 } else { 255 };
                    let is_near = idle <= truth && idle + error_max >= truth;
                    due == fetched && (truth > 32_000 || is_near)
                }
                (due, _) => due.is_none(),
            };
            if may_be {
                due.uses = seen.uses;
            }
        } else {
            self.meta = None;
        }
    }
}
