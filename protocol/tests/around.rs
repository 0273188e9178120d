//! Compares answers made of the texts of `Show::surround` with answers that `head` and `end` write.
//!
//! Where: integration tests, which use only the crate's public interface.
//! Invariant: an answer made of the texts of `Show::surround` equals the answer in pieces.
//! Source: none; a fast path must not change an answer.

mod item;

use item::Item;
use memory::short::ShortText;
use protocol::binary::opcode::{OPCODES, Shape};
use protocol::meta::write::GetValue;
use protocol::show::Show;
use protocol::text::write::Value as TextValue;
use protocol::{Tag, binary};

const KEY: &[u8] = b"a key";

/// Assembles an answer from the texts of `surround`, as the store does; `None` if there are none.
fn in_one_go(show: &impl Show, item: &Item, value: &[u8]) -> Option<Vec<u8>> {
    let around = show.surround(item)?;
    let mut out = Vec::new();
    let put = |out: &mut Vec<u8>, short: &ShortText| {
        out.extend_from_slice(&short.text().to_le_bytes()[..short.bytes() as usize]);
    };
    around.before.iter().for_each(|short| put(&mut out, short));
    if around.key {
        out.extend_from_slice(show.key());
    }
    around.between.iter().for_each(|short| put(&mut out, short));
    out.extend_from_slice(value);
    put(&mut out, &around.behind);
    Some(out)
}

fn by_pieces(show: &impl Show, item: &Item, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let shows_value = show.head(item, &mut out);
    assert!(shows_value.is_some(), "no field needs the item's lock");
    if shows_value == Some(true) {
        out.extend_from_slice(value);
    }
    show.end(&mut out);
    out
}

/// Asserts that `in_one_go` gives the answer of `by_pieces`, or no answer if `fits` is false.
fn agree(show: &impl Show, item: &Item, fits: bool) {
    assert_eq!(show.key(), KEY);
    let value = vec![b'v'; item.value_bytes as usize];
    let due = fits.then(|| by_pieces(show, item, &value));
    assert_eq!(in_one_go(show, item, &value), due, "{item:?}");
}

#[test]
fn what_is_said_in_one_go_is_what_is_said_piece_by_piece() {
    for (client_flags, value_bytes, is_short) in [
        (0, 0, true),
        (0, 9, true),
        (7, 10, true),
        (9_999, 9_999, true),
        (10_000, 9_999, false),
        (9_999, 10_000, false),
    ] {
        let item =
            Item { client_flags, value_bytes, cas: 0x0102_0304_0506_0708, ..Item::default() };
        agree(&TextValue::<false, false> { key: KEY }, &item, is_short);
        agree(&TextValue::<false, true> { key: KEY }, &item, is_short);
        agree(&TextValue::<true, false> { key: KEY }, &item, false);
        agree(&TextValue::<true, true> { key: KEY }, &item, false);
        agree(&GetValue { key: KEY, now: 5 }, &item, value_bytes < 10_000);
        for opcode in OPCODES.iter().filter(|it| matches!(it.shape, Shape::Get { .. })) {
            let tag = Tag { opcode: opcode.code, quiet: opcode.quiet, opaque: 0xa1b2_c3d4 };
            agree(&binary::write::Value { key: KEY, tag }, &item, true);
        }
    }
}

#[test]
fn a_marked_item_is_not_shown_in_one_go_by_mg() {
    for (stale, token_sent) in [(true, false), (false, true), (true, true)] {
        let item = Item { stale, token_sent, ..Item::default() };
        agree(&GetValue { key: KEY, now: 5 }, &item, false);
    }
}
