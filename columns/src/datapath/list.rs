//! A column's datapaths, as one list.
//!
//! ```text
//! number of a descriptor    | datapath (2 bits) | descriptor of the datapath (6 bits) |
//! ```
//!
//! Where: the column's loop walks the list once per turn; each datapath receives, has its
//! datagrams executed, and sends the answers.
//! Invariant: a datapath has the same place in the list of each column, so that a column that
//! steals finds the datapath of its victim. A new datapath is a variant of `AnyDatagrams`.

use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;

use super::Datapath;
use super::udp::Udp;
use super::xdp::Xdp;
use crate::datagram::{Datagrams, Next};
use crate::executor::Executor;
use crate::turn::TurnState;

/// Most datapaths of a column.
pub const DATAPATHS_MAX: usize = 1 << DATAPATH_BITS;

const DATAPATH_BITS: u32 = 2;
const DESCRIPTOR_BITS: u32 = 6;
const DESCRIPTOR_MASK: usize = (1 << DESCRIPTOR_BITS) - 1;

/// One more than the largest number of a descriptor.
pub(crate) const NUMBERS: u64 = 1 << (DATAPATH_BITS + DESCRIPTOR_BITS);

/// One datapath of a column, with its datagrams.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a column has few of them, for as long as it runs")]
pub enum AnyDatagrams {
    /// Sockets of the kernel.
    Udp(Datagrams<Udp>),
    /// A queue of an interface.
    Xdp(Datagrams<Xdp>),
}

macro_rules! each {
    ($any:expr, $datagrams:ident => $act:expr) => {
        match $any {
            AnyDatagrams::Udp($datagrams) => $act,
            AnyDatagrams::Xdp($datagrams) => $act,
        }
    };
}

/// The datagrams that a column received in one loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoopInput {
    pub(crate) datagrams: usize,
    /// The most datagrams that one receive call returned; 1 if a lone client waits for each answer.
    pub(crate) most: usize,
    /// The number of the descriptor from which other columns may steal.
    pub(crate) socket: usize,
    /// True if the datapaths still hold datagrams that the column has not received.
    pub(crate) is_undrained: bool,
    /// How many times other columns have stolen from this column; the column fills this in.
    pub(crate) steals_given: u64,
}

/// A column's datapaths.
#[derive(Debug, Default)]
pub struct Datapaths(ArrayVec<AnyDatagrams, DATAPATHS_MAX>);

impl FromIterator<AnyDatagrams> for Datapaths {
    /// Makes the list of at most `DATAPATHS_MAX` datapaths.
    fn from_iter<I: IntoIterator<Item = AnyDatagrams>>(all: I) -> Datapaths {
        Datapaths(all.into_iter().collect())
    }
}

impl Datapaths {
    /// True if a datapath must be looked at once a second.
    #[must_use]
    pub fn wake_each_second(&self) -> bool {
        self.0.iter().any(|it| each!(it, datagrams => datagrams.path().wakes_each_second()))
    }

    /// All descriptors for the column's epoll, each with its number.
    pub(crate) fn descriptors(&self) -> Vec<(u64, BorrowedFd<'_>)> {
        let mut all = Vec::new();
        for (path, datagrams) in (0..).zip(&self.0) {
            each!(datagrams, datagrams => {
                let numbers = (path << DESCRIPTOR_BITS)..;
                all.extend(numbers.zip(datagrams.path().descriptors()));
            });
        }
        all
    }

    /// Notes that the kernel reported input for the descriptor `number`.
    pub(crate) fn note_input(&mut self, number: u64) {
        let (path, descriptor) = (number >> DESCRIPTOR_BITS, number & DESCRIPTOR_MASK as u64);
        let datagrams = usize::try_from(path).ok().and_then(|path| self.0.get_mut(path));
        if let Some(datagrams) = datagrams {
            each!(datagrams, datagrams => datagrams.note_input(descriptor));
        }
    }

    /// The column's next step for the datagrams of all datapaths, the most urgent of them.
    #[inline]
    pub(crate) fn next(&mut self) -> Next {
        let steps = self.0.iter_mut().map(|it| each!(it, datagrams => datagrams.next()));
        steps.max().unwrap_or(Next::Sleep)
    }

    /// True if no datagram waits to be executed, and no answer waits that could be sent now.
    pub(crate) fn are_over(&mut self) -> bool {
        self.0.iter_mut().all(|it| {
            each!(it, datagrams => match datagrams.next() {
                Next::Sleep => true,
                // Nothing can be sent while the interface is down.
                Next::AwaitRoom => !datagrams.path().can_send(),
                Next::Again => false,
            })
        })
    }

    /// Gives each datapath its turns. Each receive takes at most `at_once` datagrams.
    #[inline]
    pub(crate) fn turns<E: Executor>(
        &mut self,
        at_once: usize,
        turn: &mut TurnState<E>,
    ) -> LoopInput {
        let mut input = LoopInput::default();
        for (path, it) in self.0.iter_mut().enumerate() {
            let (datagrams, most, is_undrained, shared) = each!(it, it => {
                it.limit(at_once);
                (it.turns(turn), it.most(), it.is_undrained(), it.path().shared_descriptor())
            });
            let Some(descriptor) = shared else { continue };
            // Other columns steal where the most datagrams came from.
            if datagrams >= input.datagrams && (is_undrained || !input.is_undrained) {
                input.socket = path << DESCRIPTOR_BITS | descriptor;
            }
            input.datagrams += datagrams;
            input.most = input.most.max(most);
            input.is_undrained |= is_undrained;
        }
        input
    }

    /// Receives at most `at_once` datagrams from the descriptor `socket` of another column, and
    /// answers them. Returns how many datagrams were received.
    #[inline]
    pub(crate) fn steal<E: Executor>(
        &mut self,
        (column, socket): (usize, usize),
        at_once: usize,
        turn: &mut TurnState<E>,
    ) -> usize {
        let Some(it) = self.0.get_mut(socket >> DESCRIPTOR_BITS) else { return 0 };
        each!(it, it => {
            it.limit(at_once);
            it.steal(column, socket & DESCRIPTOR_MASK, turn)
        })
    }

    /// Looks at the interfaces, and drops requests whose parts did not arrive in time.
    pub(crate) fn look<E: Executor>(&mut self, turn: &TurnState<E>) {
        for it in &mut self.0 {
            each!(it, it => {
                it.path_mut().look(turn.now_ms);
                it.drop_late(turn);
            });
        }
    }

    /// Bytes of memory outside the store.
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.iter().map(|it| each!(it, it => it.held_bytes())).sum()
    }
}
