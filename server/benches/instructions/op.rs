//! The operations whose instructions are counted, by name.
//!
//! Where: each operation is a row of the table. A run under callgrind gets the operation's name.
//! Invariant: each operation has one name.

use hypostyle::start::settings::ZeroCopy;

use crate::measure::wire::Protocol;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// An empty loop, whose cost is subtracted from the cost of every other operation.
    Nothing,
    /// The column's work between two batches of 32 operations. The figure is a 32nd of this work.
    Loop,
    GetHit,
    /// A get of a key that has not been read yet.
    GetHitFirst,
    GetHitAhead,
    /// A get that appends the value to a buffer, as a reply does.
    GetInto,
    GetMiss,
    SetSame,
    SetNew,
    SetSameEvicting,
    SetNewEvicting,
    /// Increments a number without adding a digit.
    Incr,
    Append,
    Delete,
    RequestGetHit,
    /// Sixteen requests that arrive together.
    RequestGetHitAhead,
    /// Sixteen requests that arrive together, each on its own connection.
    RequestGetHitConnections,
    /// Thirty-two datagrams that arrive together, each from its own client.
    RequestGetHitUdp,
    /// Thirty-two datagrams that arrive together, all from one client.
    RequestGetHitUdpBurst,
    /// Thirty-two packets that arrive together over AF_XDP, each from its own client.
    PacketGetHit(ZeroCopy),
    PacketSetSame(ZeroCopy),
    RequestGetMiss,
    RequestSetSame,
    RequestSetSameAhead,
    RequestSetNew,
    RequestSetSameEvicting,
    RequestSetNewEvicting,
    RequestMetaGetHit,
    RequestMetaGetHitAhead,
    RequestMetaSetSame,
    RequestBinaryGetHit,
    RequestBinarySetSame,
}

impl Op {
    pub(crate) const ALL: [(&'static str, Op); 35] = [
        ("nothing", Op::Nothing),
        ("loop: quiesce and maintain, a 32nd", Op::Loop),
        ("store: get, hit", Op::GetHit),
        ("store: get, hit, key not read before", Op::GetHitFirst),
        ("store: get, hit, 16 read ahead", Op::GetHitAhead),
        ("store: get into a buffer, hit", Op::GetInto),
        ("store: get, miss", Op::GetMiss),
        ("store: set, replacing a value of equal size", Op::SetSame),
        ("store: set, new key", Op::SetNew),
        ("store: set, replacing a value of equal size, evicting", Op::SetSameEvicting),
        ("store: set, new key, evicting", Op::SetNewEvicting),
        ("store: incr", Op::Incr),
        ("store: append", Op::Append),
        ("store: delete", Op::Delete),
        ("request: get, hit", Op::RequestGetHit),
        ("request: get, hit, 16 together", Op::RequestGetHitAhead),
        ("request: get, hit, 16 connections", Op::RequestGetHitConnections),
        ("request: get, hit, 32 datagrams", Op::RequestGetHitUdp),
        ("request: get, hit, a burst of 32 datagrams", Op::RequestGetHitUdpBurst),
        ("request: get, miss", Op::RequestGetMiss),
        ("request: set, replacing a value of equal size", Op::RequestSetSame),
        ("request: set, replacing a value of equal size, 16 together", Op::RequestSetSameAhead),
        ("request: set, new key", Op::RequestSetNew),
        ("request: set, replacing a value of equal size, evicting", Op::RequestSetSameEvicting),
        ("request: set, new key, evicting", Op::RequestSetNewEvicting),
        ("request, meta: mg, hit", Op::RequestMetaGetHit),
        ("request, meta: mg, hit, 16 together", Op::RequestMetaGetHitAhead),
        ("request, meta: ms, replacing a value of equal size", Op::RequestMetaSetSame),
        ("request, binary: getk, hit", Op::RequestBinaryGetHit),
        ("request, binary: set, replacing a value of equal size", Op::RequestBinarySetSame),
        ("packet: get, hit", Op::PacketGetHit(ZeroCopy::Off)),
        ("packet: get, hit, zero_copy=send", Op::PacketGetHit(ZeroCopy::Send)),
        ("packet: set, replacing a value of equal size", Op::PacketSetSame(ZeroCopy::Off)),
        (
            "packet: set, replacing a value of equal size, zero_copy=send",
            Op::PacketSetSame(ZeroCopy::Send),
        ),
        (
            "packet: set, replacing a value of equal size, zero_copy=full",
            Op::PacketSetSame(ZeroCopy::Full),
        ),
    ];

    pub(crate) fn is_evicting(self) -> bool {
        matches!(
            self,
            Op::SetSameEvicting
                | Op::SetNewEvicting
                | Op::RequestSetSameEvicting
                | Op::RequestSetNewEvicting
        )
    }

    pub(crate) fn is_of_new_keys(self) -> bool {
        matches!(
            self,
            Op::GetMiss
                | Op::SetNew
                | Op::SetNewEvicting
                | Op::RequestGetMiss
                | Op::RequestSetNew
                | Op::RequestSetNewEvicting
        )
    }

    /// True if each key is used for one operation only.
    pub(crate) fn is_once_a_key(self) -> bool {
        matches!(self, Op::GetHitFirst | Op::Append | Op::Delete) || self.is_of_new_keys()
    }

    pub(crate) fn is_ahead(self) -> bool {
        matches!(
            self,
            Op::RequestGetHitAhead | Op::RequestSetSameAhead | Op::RequestMetaGetHitAhead
        )
    }

    pub(crate) fn is_request(self) -> bool {
        self.is_get()
            || matches!(
                self,
                Op::RequestSetSame
                    | Op::RequestSetSameAhead
                    | Op::RequestSetNew
                    | Op::RequestSetSameEvicting
                    | Op::RequestSetNewEvicting
                    | Op::RequestMetaSetSame
                    | Op::RequestBinarySetSame
                    | Op::PacketSetSame(_)
            )
    }

    pub(crate) fn is_get(self) -> bool {
        matches!(
            self,
            Op::RequestGetHit
                | Op::RequestGetHitAhead
                | Op::RequestGetHitConnections
                | Op::RequestGetHitUdp
                | Op::RequestGetHitUdpBurst
                | Op::RequestGetMiss
                | Op::RequestMetaGetHit
                | Op::RequestMetaGetHitAhead
                | Op::RequestBinaryGetHit
                | Op::PacketGetHit(_)
        )
    }

    /// The mode of `-o zero_copy` for an operation over AF_XDP; `None` for other operations.
    pub(crate) fn zero_copy(self) -> Option<ZeroCopy> {
        match self {
            Op::PacketGetHit(zero_copy) | Op::PacketSetSame(zero_copy) => Some(zero_copy),
            _ => None,
        }
    }

    /// The protocol that the operation always uses, or `None` if `--protocol` chooses the protocol.
    pub(crate) fn protocol(self) -> Option<Protocol> {
        match self {
            Op::RequestMetaGetHit | Op::RequestMetaGetHitAhead | Op::RequestMetaSetSame => {
                Some(Protocol::Meta)
            }
            Op::RequestBinaryGetHit | Op::RequestBinarySetSame => Some(Protocol::Binary),
            _ => None,
        }
    }
}
