//! LIRS: an item that is soon used again stays in the cache; other items pass through a short
//! queue.
//!
//! Where: a model for comparisons with our policies. Invariant: the oldest key of the stack is
//! always a LIR (`Kind::Lir`): the stack forgets all keys that are older than the oldest LIR. An
//! evicted key is remembered only while it is in the stack.
//! Source: Jiang and Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement
//! Policy", SIGMETRICS 2002, section 3.2; with bytes in place of blocks. The stack is not bounded.

use super::lists::Lists;
use crate::cache::{Cache, Shape};

/// The capacity divided by this number is the room for resident HIRs (at least one mean item).
const HIR_PART: u64 = 100;

/// The kind of a key. A key of kind `Nothing` is neither in the stack nor in the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    /// Low inter-reference recency: resident, and in the stack.
    Lir,
    /// High inter-reference recency: resident, in the queue, and perhaps in the stack.
    Hir,
    /// Evicted, and still in the stack.
    Ghost,
}

/// LIRS.
pub struct Lirs<'w> {
    /// The stack S, in the order of last uses: all LIRs, and keys used since the oldest LIR was
    /// used.
    stack: Lists<'w, 1>,
    /// The queue Q of the LIRS paper: the resident HIRs; the item at the back is evicted next.
    queue: Lists<'w, 1>,
    kinds: Vec<Kind>,
    lir_bytes: u64,
    lir_bytes_max: u64,
}

impl<'w> Lirs<'w> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(shape: Shape<'w>) -> Self {
        let hir_bytes = (shape.capacity_bytes / HIR_PART).max(shape.mean_bytes());
        Lirs {
            stack: Lists::new(shape),
            queue: Lists::new(shape),
            kinds: vec![Kind::Nothing; shape.keys()],
            lir_bytes: 0,
            lir_bytes_max: shape.capacity_bytes.saturating_sub(hir_bytes),
        }
    }

    fn bytes_of(&self, key: u32) -> u64 {
        self.stack.shape.bytes_of(key)
    }

    /// Prunes the stack, as in the LIRS paper, so that its oldest key is a LIR.
    fn prune(&mut self) {
        while let Some(oldest) = self.stack.back(0) {
            match self.kinds[oldest as usize] {
                Kind::Lir => return,
                Kind::Ghost => self.kinds[oldest as usize] = Kind::Nothing,
                Kind::Hir | Kind::Nothing => {}
            }
            self.stack.take(oldest);
        }
    }

    /// Makes the oldest LIR the newest resident HIR; false if there is no LIR.
    fn demote(&mut self) -> bool {
        let Some(oldest) = self.stack.back(0) else { return false };
        self.stack.take(oldest);
        self.kinds[oldest as usize] = Kind::Hir;
        self.lir_bytes -= self.bytes_of(oldest);
        self.queue.push(0, oldest);
        self.prune();
        true
    }

    /// Makes a key a LIR; if there are too many LIRs, makes the oldest ones HIRs.
    fn promote(&mut self, key: u32) {
        self.queue.take(key);
        self.stack.push(0, key);
        self.kinds[key as usize] = Kind::Lir;
        self.lir_bytes += self.bytes_of(key);
        while self.lir_bytes > self.lir_bytes_max && self.demote() {}
    }

    /// Evicts HIRs, or LIRs if there are no HIRs, until `bytes` bytes are free.
    fn make_room(&mut self, bytes: u64) {
        while self.live_bytes() + bytes > self.stack.shape.capacity_bytes {
            match self.queue.back(0) {
                Some(oldest) => {
                    self.queue.take(oldest);
                    let remembered = self.stack.of(oldest).is_some();
                    let kind = if remembered { Kind::Ghost } else { Kind::Nothing };
                    self.kinds[oldest as usize] = kind;
                }
                None if self.demote() => {}
                None => return,
            }
        }
    }

    /// Makes a requested key the newest HIR of the stack and of the queue.
    fn pass(&mut self, key: u32) {
        self.kinds[key as usize] = Kind::Hir;
        self.stack.push(0, key);
        self.queue.push(0, key);
    }

    fn miss(&mut self, key: u32) {
        if !self.stack.shape.fits(key) {
            return;
        }
        let bytes = self.bytes_of(key);
        self.make_room(bytes);
        // `make_room` may have removed the key from the stack.
        let came_back = self.kinds[key as usize] == Kind::Ghost;
        if came_back || self.lir_bytes + bytes <= self.lir_bytes_max {
            self.promote(key);
        } else {
            self.pass(key);
            self.prune();
        }
    }
}

impl Cache for Lirs<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        match self.kinds[key as usize] {
            Kind::Lir => {
                self.stack.push(0, key);
                self.prune();
            }
            Kind::Hir if self.stack.of(key).is_some() => self.promote(key),
            Kind::Hir => {
                self.pass(key);
                self.prune();
            }
            Kind::Ghost | Kind::Nothing => {
                self.miss(key);
                return false;
            }
        }
        true
    }

    fn live_bytes(&self) -> u64 {
        self.lir_bytes + self.queue.bytes(0)
    }
}
