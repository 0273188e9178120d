//! Items of every form are written, read and rewritten, at every alignment.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

use super::shape::{EXP, FLAGS, KEY_BINARY};
use super::*;

const LAYOUTS: [Layout; 2] =
    [Layout { cas: false, frame_bytes: 4096 }, Layout { cas: true, frame_bytes: 4096 }];

const BASE: u64 = 1_000_000_000_000;

fn region() -> Region {
    Region::new(1 << 20, 1).expect("address space")
}

fn shapes(layout: Layout) -> impl Iterator<Item = Shape> {
    let keys = [1, 63, 64, 250];
    let values = [0, 17, 511, 512, 4095, 4096, 9000, 70_000];
    let lengths = keys.into_iter().flat_map(move |key| values.map(|value| (key, value)));
    lengths.flat_map(move |(key, value)| {
        (0..32_u8).map(move |bits| {
            let bit = |at: u8| bits & (1 << at) != 0;
            let cas = match (layout.cas, bit(0)) {
                (false, _) => CasWidth::None,
                (true, false) => CasWidth::Short,
                (true, true) => CasWidth::Long,
            };
            let shape = Shape::new(key, value, cas)
                .with(EXP, bit(1))
                .with(FLAGS, bit(2))
                .with(KEY_BINARY, bit(3));
            let framed = bit(4) || value > 10_000;
            if framed { shape.in_frames(value % layout.frame_bytes) } else { shape }
        })
    })
}

fn written<'r>(
    region: &'r Region,
    loc: u64,
    layout: Layout,
    (shape, fields): (Shape, &Fields<'_>),
) -> Item<'r> {
    // SAFETY: the region is this test's alone.
    unsafe {
        write(region, loc, shape, fields, BASE);
        write_void(region, loc + u64::from(shape.extent()), 70_000);
        match record(region, loc, layout) {
            Record::Item(item) => item,
            Record::Void(extent) => panic!("a void of {extent} bytes for {shape:?}"),
        }
    }
}

fn is_followed_by_its_void(region: &Region, loc: u64, layout: Layout, shape: Shape) -> bool {
    // SAFETY: `written` wrote a void behind the item.
    let void = unsafe { record(region, loc + u64::from(shape.extent()), layout) };
    matches!(void, Record::Void(70_000))
}

#[test]
fn what_is_written_is_read() {
    let region = region();
    let (key, value) = ([7; 250], [9; 9000]);
    for (layout, loc) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 100), (layout, 113)]) {
        let in_arena =
            |shape: Shape| shape.is_chained().then(|| (shape.in_frames(0), 12 | 1 << 31));
        let both = |shape| [Some((shape, 12)), in_arena(shape)];
        for (shape, first_frame) in shapes(layout).flat_map(both).flatten() {
            let split = shape.log_bytes as usize / 3;
            let fields = Fields {
                key: &key[..shape.key_bytes as usize],
                value: [&value[..split], &value[split..shape.log_bytes as usize]],
                cas: BASE + 1,
                exptime: 77,
                client_flags: 0xdead_beef,
                first_frame,
                accessed: Stamp(513),
            };
            let item = written(&region, loc, layout, (shape, &fields));
            assert_eq!((item.shape(), item.extent()), (shape, shape.extent()));
            assert_eq!((item.key(), item.accessed()), (fields.key, Stamp(513)));
            // SAFETY: nobody else has the item.
            assert_eq!(unsafe { item.log_value() }, &value[..shape.log_bytes as usize]);
            assert_eq!(item.exptime(), if shape.has_exp() { 77 } else { 0 });
            assert_eq!(item.client_flags(), if shape.has_flags() { 0xdead_beef } else { 0 });
            assert_eq!(item.first_frame(), shape.is_chained().then_some(first_frame));
            assert_eq!(item.cas(|| BASE), if layout.cas { BASE + 1 } else { 0 });
            item.set_accessed(Stamp(40_000));
            assert_eq!(item.accessed(), Stamp(40_000));
            if shape.has_exp() {
                item.set_exptime(0x0102_0304);
                assert_eq!(item.exptime(), 0x0102_0304);
            }
            assert_eq!((item.key(), item.cas(|| 0) != 0), (fields.key, layout.cas));
            assert!(is_followed_by_its_void(&region, loc, layout, shape), "{shape:?}");
        }
    }
}

#[test]
fn what_is_rewritten_is_read_at_every_place_and_length() {
    let region = region();
    let key = [7; 64];
    let lengths = [3, 64].into_iter().flat_map(|key| (0..70).map(move |value| (key, value)));
    for (at, (key_bytes, len)) in (0..8).flat_map(|at| lengths.clone().map(move |len| (at, len))) {
        for (layout, marked) in LAYOUTS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            let old: Vec<u8> = (0..len).collect();
            let new: Vec<u8> = (100..100 + len).collect();
            let cas = if layout.cas { CasWidth::Short } else { CasWidth::None };
            let shape =
                Shape::new(key_bytes, len.into(), cas).with(EXP, marked).with(FLAGS, marked);
            let fields = Fields {
                key: &key[..key_bytes as usize],
                value: [&old, &[]],
                cas: BASE + 5,
                exptime: 6,
                client_flags: 7,
                first_frame: 0,
                accessed: Stamp(8),
            };
            let loc = 64 + at;
            let item = written(&region, loc, layout, (shape, &fields));
            let value = [&new[..new.len() / 2], &new[new.len() / 2..]];
            let other = Fields { value, cas: BASE + 9, exptime: 10, client_flags: 11, ..fields };
            // SAFETY: nobody else has the item.
            unsafe { item.rewrite(&Fields { accessed: Stamp(12), ..other }, BASE) };
            let mut copy = vec![0; new.len()];
            item.copy_value(&mut copy);
            // SAFETY: nobody else has the item.
            let log_value = unsafe { item.log_value() };
            assert_eq!((&copy, log_value), (&new, &new[..]), "{len} bytes at {loc}");
            assert_eq!((item.key(), item.shape()), (fields.key, shape));
            let rest = (item.cas(|| BASE), item.exptime(), item.client_flags(), item.accessed());
            let if_marked = |then| if marked { then } else { 0 };
            let cas = if layout.cas { BASE + 9 } else { 0 };
            assert_eq!(rest, (cas, if_marked(10), if_marked(11), Stamp(12)));
            assert!(is_followed_by_its_void(&region, loc, layout, shape), "{len} bytes at {loc}");
        }
    }
}

/// `set_exptime` must panic in release builds too: else it would overwrite the key's first bytes.
#[test]
#[should_panic(expected = "an item that has room for an exptime")]
fn an_exptime_is_written_over_nothing_else() {
    let (region, layout) = (region(), LAYOUTS[0]);
    let shape = Shape::new(8, 8, CasWidth::None);
    let fields = Fields {
        key: b"eight by",
        value: [b"teseight", &[]],
        cas: 0,
        exptime: 0,
        client_flags: 0,
        first_frame: 0,
        accessed: Stamp(1),
    };
    written(&region, 100, layout, (shape, &fields)).set_exptime(7);
}

fn pairs(end: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..end).flat_map(|two| (0..two).map(move |one| (one, two)))
}

#[test]
fn keys_that_differ_in_any_byte_are_not_the_same() {
    let key: Vec<u8> = (0..=250).collect();
    for len in 0..=250 {
        assert!(is_same(&key[..len], &key.clone()[..len]), "{len} bytes");
        assert!(!is_same(&key[..len], &key[..=len]), "{len} bytes");
        for at in (0..len).step_by(if cfg!(miri) { 31 } else { 1 }) {
            let mut other = key[..len].to_vec();
            other[at] ^= 1 << (at % 8);
            assert!(!is_same(&key[..len], &other), "byte {at} of {len}");
        }
        // Short keys are compared word by word: equal differences in two words must not cancel out.
        for (one, two) in pairs(if cfg!(miri) { 0 } else { len.min(64) }) {
            let mut other = key[..len].to_vec();
            other[one] ^= 1;
            other[two] ^= 1;
            assert!(!is_same(&key[..len], &other), "bytes {one} and {two} of {len}");
        }
    }
}
