//! A short cut for GET in its four forms, which make up nearly all binary traffic.
//!
//! Where: the session calls `get` before the general parser (`parse`).
//! Invariant: `get` returns the request that `parse` would return, or `None`; a test compares both.
//! Source: memcached 1.6.45 `try_read_command_binary`.

use super::{HEADER_BYTES, MAGIC_REQUEST, Tag, opcode};
use crate::KEY_BYTES_MAX;
use crate::form::GetForm;
use crate::request::Get;

/// Returns a whole GET at the start of `input` that has only a key, and the length of its frame.
#[inline(always)]
pub(crate) fn get(input: &[u8]) -> Option<(Get<'_>, usize)> {
    let [_, _, high, low, ..] = input else { return None };
    let bytes = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
    Some((only_get(input.get(..bytes)?)?, bytes))
}

/// Returns the request if all of `frame` is one GET that has only a key.
#[inline(always)]
pub(crate) fn only_get(frame: &[u8]) -> Option<Get<'_>> {
    let (header, key) = frame.split_first_chunk::<HEADER_BYTES>()?;
    let [MAGIC_REQUEST, opcode, high, low, 0, _, _, _, body @ ..] = header else { return None };
    let quiet = match *opcode {
        opcode::GET | opcode::GETK => false,
        opcode::GETQ | opcode::GETKQ => true,
        _ => return None,
    };
    let [b0, b1, b2, b3, o0, o1, o2, o3, ..] = *body;
    let fits = (1..=KEY_BYTES_MAX).contains(&key.len())
        && usize::from(u16::from_be_bytes([*high, *low])) == key.len()
        && u32::from_be_bytes([b0, b1, b2, b3]) as usize == key.len();
    let tag = Tag { opcode: *opcode, quiet, opaque: u32::from_be_bytes([o0, o1, o2, o3]) };
    fits.then_some(Get { key, exptime: None, form: GetForm::Binary(tag) })
}

#[cfg(test)]
mod tests {
    use super::super::Header;
    use super::super::parse::{ParsedFrame, parse};
    use super::*;
    use crate::request::Request;
    use crate::step::Step;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_cut_leads_where_the_road_leads(
            opcode in prop_oneof![Just(0x00_u8), Just(0x09), Just(0x0c), Just(0x0d), any::<u8>()],
            key_bytes in prop_oneof![0..4_u16, 248..253_u16],
            extras_bytes in prop_oneof![9 => Just(0_u8), 1 => any::<u8>()],
            more_body in prop_oneof![9 => Just(0_u32), 1 => 0..9_u32],
            (opaque, cas, status) in any::<(u32, u64, u16)>(),
            here in 0..600_usize,
        ) {
            let body_bytes = u32::from(key_bytes) + u32::from(extras_bytes) + more_body;
            let magic = MAGIC_REQUEST;
            let header = Header {
                magic,
                opcode,
                key_bytes,
                extras_bytes,
                data_type: 7,
                status,
                body_bytes,
                opaque,
                cas,
            };
            let mut input = header.to_bytes().to_vec();
            input.resize(here.max(1), b'k');
            let whole = input.len() >= HEADER_BYTES + usize::from(key_bytes);
            let plain = [0x00, 0x09, 0x0c, 0x0d].contains(&opcode)
                && (1..=250).contains(&key_bytes)
                && (extras_bytes, more_body) == (0, 0);
            let got = get(&input);
            prop_assert_eq!(got.is_some(), whole && plain);
            if let Some((get, bytes)) = got {
                let step = Step::Request(Request::Get(get), bytes);
                prop_assert_eq!(parse(&input), ParsedFrame::Step(step));
            }
        }
    }
}
