//! Lookups that write straight to a reply's buffer: their output, and the effects of `CallOff`.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

use memory::short::{ShortText, Surround};
use store::policy::Eviction;
use store::{
    AppendedPart, Body, Column, Config, Head, HeadResult, LookupResult, MetaDelete, MetaGet, Put,
    Store, Verb,
};

fn column() -> Column {
    let config = Config {
        memory_bytes: 8 << 20,
        item_bytes_max: 1 << 20,
        columns: 1,
        eviction: Some(Eviction::default()),
        cas: true,
        now: 100,
    };
    Store::new(&config).expect("address space").column()
}

fn set(column: &mut Column, put: &Put<'_>, value: &[u8]) {
    column.put(put, Body::Bytes(value)).expect("there is room");
}

fn meta<'k>(key: &'k [u8]) -> MetaGet<'k> {
    MetaGet { key, key_binary: false, cas_in: None, bump: false, win: false, steps: &[] }
}

/// A lookup whose `template` returns `None`, so that `head` handles each hit.
fn look_up<'s>(
    column: &'s mut Column,
    key: &[u8],
    out: &mut Vec<u8>,
    head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> HeadResult,
) -> LookupResult<'s> {
    let hash = column.hashed(key);
    column.get_into(key, hash, out, |_| None, head)
}

#[test]
fn what_a_head_calls_off_leaves_nothing_and_is_no_use() {
    let mut column = column();
    set(&mut column, &Put::new(Verb::Set, b"key"), b"value");
    let mut out = b"before".to_vec();
    let looked = look_up(&mut column, b"key", &mut out, |out, head| {
        out.extend_from_slice(b"head");
        if head.value_bytes() == 5 { HeadResult::CallOff } else { HeadResult::Value }
    });
    assert!(matches!(looked, LookupResult::CalledOff), "{looked:?}");
    assert_eq!(out, b"before");
    assert!(!column.meta_get(&meta(b"key")).expect("no steps").expect("a hit").fetched);
    let looked = look_up(&mut column, b"key", &mut out, |out, _| {
        out.extend_from_slice(b" head ");
        HeadResult::Value
    });
    assert!(matches!(looked, LookupResult::Hit(AppendedPart::Whole)), "{looked:?}");
    assert_eq!(out, b"before head value");
    let looked = look_up(&mut column, b"key", &mut out, |out, _| {
        out.extend_from_slice(b" alone");
        HeadResult::NoValue
    });
    assert!(matches!(looked, LookupResult::Hit(AppendedPart::Whole)), "{looked:?}");
    assert_eq!(out, b"before head value alone");
    assert!(column.meta_get(&meta(b"key")).expect("no steps").expect("a hit").fetched);
    let looked = look_up(&mut column, b"none", &mut out, |_, _| panic!("there is none"));
    assert!(matches!(looked, LookupResult::Miss), "{looked:?}");
}

const SHORT_BYTES_MAX: usize = 1024;

#[test]
fn what_stands_around_a_value_stands_there_whatever_their_lengths() {
    let mut column = column();
    let words = Surround {
        before: [
            ShortText::of(b"8 bytes "),
            ShortText::of(b"behind"),
            ShortText::NONE,
            ShortText::of(b": "),
        ],
        key: false,
        between: [ShortText::of(b" = "), ShortText::of(b"<")],
        behind: ShortText::of(b">;"),
    };
    let lengths = (0..70).chain([127, 128, 129, 1000, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1]);
    for (value_bytes, shows_key) in lengths.flat_map(|bytes| [(bytes, false), (bytes, true)]) {
        let key = vec![b'k'; value_bytes % 250 + 1];
        let value: Vec<u8> = (0..=u8::MAX).cycle().take(value_bytes).collect();
        set(&mut column, &Put::new(Verb::Set, &key), &value);
        let (hash, mut out) = (column.hashed(&key), b"there".to_vec());
        let around = |head: &Head<'_>| {
            assert_eq!(head.value_bytes() as usize, value_bytes);
            Some(Surround { key: shows_key, ..words })
        };
        let looked = column.get_into(&key, hash, &mut out, around, |_, _| HeadResult::Value);
        let expected = if value_bytes > SHORT_BYTES_MAX {
            let LookupResult::Hit(AppendedPart::Lasting(shown, kept)) = looked else {
                panic!("{looked:?}")
            };
            assert_eq!(shown, value);
            assert_eq!(column.kept(kept), Some(&value[..]));
            column.quiesce();
            assert_eq!(column.kept(kept), None);
            b"there".to_vec()
        } else {
            assert!(matches!(looked, LookupResult::Hit(AppendedPart::FromTemplate)), "{looked:?}");
            let key = if shows_key { &key[..] } else { b"" };
            [b"there8 bytes behind: ", key, b" = <", &value, b">;"].concat()
        };
        assert_eq!(out, expected, "{value_bytes} bytes");
        // The key is deleted, because a later key with the same tag would take another code path.
        assert!(column.delete(&key));
    }
}

#[test]
fn a_head_tells_what_a_locked_look_does() {
    let mut column = column();
    let put = |key| Put { client_flags: 7, ..Put::new(Verb::Set, key) };
    set(&mut column, &put(b"plain"), b"1");
    set(&mut column, &Put { key_binary: true, ..put(b"binary") }, b"22");
    set(&mut column, &Put { exptime: 900, ..put(b"expires") }, b"333");
    set(&mut column, &put(b"stale"), b"4444");
    let stale = MetaDelete {
        key: b"stale",
        cas: None,
        cas_in: None,
        stale: true,
        exptime: None,
        remove_value: false,
        client_flags: 0,
    };
    column.meta_delete(&stale).expect("there is room");
    set(&mut column, &put(b"won"), b"55555");
    column.meta_delete(&MetaDelete { key: b"won", ..stale }).expect("there is room");
    let won = column.meta_get(&MetaGet { win: true, bump: true, ..meta(b"won") });
    assert!(won.expect("no steps").expect("a hit").won);
    for key in [&b"plain"[..], b"binary", b"expires", b"stale", b"won"] {
        let hit = column.meta_get(&meta(key)).expect("no steps").expect("a hit");
        let exptime = if hit.exptime == 0 { Some(0) } else { None };
        let due = (hit.hit.client_flags, hit.hit.value_bytes, hit.hit.cas, exptime);
        let idle_seconds = hit.idle_seconds;
        let marks = (hit.key_binary, hit.fetched, hit.stale, hit.token_sent);
        let looked = look_up(&mut column, key, &mut Vec::new(), |_, head| {
            let reported = (head.client_flags(), head.value_bytes(), head.cas(), head.exptime());
            assert_eq!(reported, due);
            let reported = (head.key_binary(), head.fetched(), head.stale(), head.token_sent());
            assert_eq!(reported, marks);
            assert_eq!(head.idle_seconds(), Some(idle_seconds));
            HeadResult::CallOff
        });
        assert!(matches!(looked, LookupResult::CalledOff));
    }
}

#[test]
fn how_long_an_item_lay_idle_is_told_where_the_lookup_does_not_change_it() {
    let mut column = column();
    set(&mut column, &Put::new(Verb::Set, b"key"), b"value");
    for (now, due) in [(100, true), (160, true), (161, false), (5000, false)] {
        column.set_now(now);
        let locked = column.meta_get(&meta(b"key")).expect("no steps").expect("a hit").idle_seconds;
        let looked = look_up(&mut column, b"key", &mut Vec::new(), |_, head| {
            assert_eq!(head.idle_seconds(), due.then_some(locked), "at {now}");
            HeadResult::CallOff
        });
        assert!(matches!(looked, LookupResult::CalledOff));
    }
}
