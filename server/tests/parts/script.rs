//! Interprets any bytes as a script of datagrams, and runs the script on the assembly and on the
//! assembly's model. A step of the script has five bytes:
//!
//! ```text
//! 0 | bit 0: 1 if the step describes a datagram, 0 if the datagram follows literally
//!   | bits 1 to 7: host and port of the sender
//! 1 | bits 0 to 3: time until the datagram, an index into `PASSES_MS`; bits 4 to 7: request id
//! 2 | number of the part
//! 3 | total number of parts
//! 4 | length of the part in steps of 16 or 512 bytes, or of the datagram that follows literally
//!   | bit 0: 0 if a complete request is taken out of the assembly at once
//! ```
//!
//! Where: included by the test in this folder and by the fuzz target.
//! Invariant: after each datagram the assembly and the model agree on its outcome, on the bytes of
//! complete requests, and on whether requests wait. The assembly keeps its memory limits.
//! Source: `columns/src/datagram/assembly.rs`.

use std::net::SocketAddr;

use columns::datagram::assembly::{AddResult, Assembly, Piece, RequestId};
use columns::datagram::whole::WholeRequest;
use columns::limits::{ASSEMBLIES_MAX, MESSAGE_BYTES_MAX, PARTS_MAX};
use protocol::udp::Header;

use crate::model::{Model, Outcome};

const STEP_BYTES: usize = 5;
/// Milliseconds until the datagram of a step, indexed by four bits of the step.
const PASSES_MS: [u64; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 10, 100, 500, 999, 1000];
/// Maximum bytes that the assembly holds. Buffers double as they grow, and a complete request has a
/// buffer in addition to the buffers of incomplete requests.
const HELD_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX * (ASSEMBLIES_MAX + 1);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) waits: u64,
    pub(crate) ignored: u64,
    pub(crate) too_long: u64,
    pub(crate) wholes: u64,
    pub(crate) evicted: u64,
    pub(crate) late: u64,
}

pub(crate) fn run(mut script: &[u8]) -> Counts {
    let (mut assembly, mut model) = (Assembly::default(), Model::default());
    let (mut counts, mut now_ms) = (Counts::default(), 0);
    while let Some((&[sender, moment, number, total, size], rest)) =
        script.split_first_chunk::<STEP_BYTES>()
    {
        script = rest;
        now_ms += PASSES_MS[usize::from(moment & 15)];
        let late = model.drop_late(now_ms);
        assert_eq!(assembly.drop_late(now_ms), late);
        let from = SocketAddr::from(([10, 0, 0, sender >> 1 & 31], 4000 + u16::from(sender >> 6)));
        let datagram = if sender & 1 == 0 {
            let (datagram, rest) = script.split_at(usize::from(size).min(script.len()));
            script = rest;
            datagram.to_vec()
        } else {
            make_datagram(moment >> 4, number, total, size)
        };
        counts.late += late;
        let Some((header, bytes)) = Header::read(&datagram) else { continue };
        let whose = RequestId { from, id: header.id };
        let (added, evicted) = assembly.add(whose, header, [Piece::Here(bytes)], now_ms);
        let outcome = match added {
            AddResult::Waits => Outcome::Waits,
            AddResult::Ignored => Outcome::Ignored,
            AddResult::TooLong => Outcome::TooLong,
            AddResult::Whole => Outcome::Whole(assembly.texts(whose).flatten().copied().collect()),
        };
        counts.evicted += evicted;
        match &outcome {
            Outcome::Waits => counts.waits += 1,
            Outcome::Ignored => counts.ignored += 1,
            Outcome::TooLong => counts.too_long += 1,
            Outcome::Whole(_) => counts.wholes += 1,
        }
        let expected = model.add(from, header, bytes, now_ms);
        assert_eq!((outcome, evicted), expected);
        if added == AddResult::Whole && size & 1 == 0 {
            let mut taken = WholeRequest::default();
            assembly.take_whole(whose, &mut taken);
            assert_eq!(Outcome::Whole(taken.bytes().to_vec()), expected.0);
            model.finish(from, header.id);
        }
        assert_eq!(assembly.any(), !model.is_empty());
        let held_bytes = assembly.held_bytes();
        assert!(held_bytes <= HELD_BYTES_MAX, "{held_bytes} bytes");
    }
    counts
}

/// Ids have only four bits, so that many datagrams belong to the same request.
fn make_datagram(id: u8, number: u8, total: u8, size: u8) -> Vec<u8> {
    let most = u16::try_from(PARTS_MAX).unwrap();
    let total = match total {
        0..=99 => u16::from(total % 6),
        100..=249 => u16::from(total - 90),
        _ => most + u16::from(total) - 252,
    };
    let bytes = match usize::from(size) {
        few @ 0..=127 => few * 16,
        many => (many - 127) * 512,
    };
    let header = Header { id: id.into(), number: number.into(), total, flow: 0 };
    let mut datagram = header.bytes().to_vec();
    let pattern: Vec<u8> = (0..=250).map(|at| at ^ number).collect();
    datagram.extend_from_slice(&pattern.repeat(bytes / pattern.len() + 1)[..bytes]);
    datagram
}
