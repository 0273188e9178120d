//! Tests that names and values are unique, have the drawn sizes, and can be verified.
//!
//! Where: unit tests. Invariant: see `tests`.

use super::super::{KEYS_MAX, Names, Workload};
use super::made;
use std::collections::HashSet;
use std::sync::Arc;

fn key(names: &Names, number: u64) -> Vec<u8> {
    let mut out = b"get ".to_vec();
    names.key(number, &mut out);
    assert!(out.starts_with(b"get "));
    out.split_off(4)
}

fn value(names: &Names, number: u64, bytes: u32) -> Vec<u8> {
    let mut out = Vec::new();
    names.value(number, bytes, &mut out);
    assert_eq!(out.len(), bytes as usize);
    out
}

#[test]
fn every_key_has_a_name_of_its_own() {
    for (keys, size, prefix) in [
        ("200000", "etc", ""),
        ("200000", "1", ""),
        ("200000", "1-8", ""),
        ("200000", "4-9", "u:"),
        ("94", "1", ""),
        ("95", "1", ""),
        ("10", "1-3", "pre"),
        ("200000", "250", ""),
    ] {
        let workload =
            made("uniform", &[("keys", keys), ("key-size", size), ("key-prefix", prefix)]);
        let names = Names::new(&workload);
        let count = workload.keys();
        let made: HashSet<Vec<u8>> = (0..count).map(|number| key(&names, number)).collect();
        assert_eq!(made.len() as u64, count, "{keys} keys of {size} bytes");
        let is_name = |name: &Vec<u8>| {
            (1..=250).contains(&name.len())
                && name.iter().all(|byte| (0x21..=0x7e).contains(byte))
                && name.starts_with(prefix.as_bytes())
        };
        assert!(made.iter().all(is_name), "{keys} keys of {size} bytes");
    }
}

#[test]
fn names_have_the_sizes_that_are_asked_for() {
    let of = |settings: &[(&str, &str)], number| {
        String::from_utf8(key(&Names::new(&made("uniform", settings)), number)).unwrap()
    };
    assert_eq!(of(&[("key-size", "10")], 42), "....000042");
    assert_eq!(of(&[("key-size", "10"), ("key-prefix", "a:")], 42), "a:..000042");
    assert_eq!(of(&[("key-size", "6")], 999_999), "999999");
    // A million numbers take four digits of base 94 if there is no room for six decimal digits.
    assert_eq!(of(&[("key-size", "5")], 95), "!!!\"\"");
    assert_eq!(of(&[("key-size", "1")], 95), "!!\"\"");
    let most = KEYS_MAX.to_string();
    assert_eq!(of(&[("key-size", "1"), ("keys", &most)], KEYS_MAX - 1).len(), 7);
    let long = "p".repeat(200);
    assert_eq!(of(&[("key-size", "250"), ("key-prefix", &long)], 7).len(), 250);
    // Sizes follow a law. A name has the drawn size if this size is large enough for the number.
    let workload = made("etc", &[]);
    let names = Names::new(&workload);
    let bytes: usize = (0..100_000).map(|number| key(&names, number).len()).sum();
    assert!((bytes as f64 / 1e5 - 36.2).abs() < 0.1, "{bytes}");
}

#[test]
fn values_are_verified() {
    let workload = made("uniform", &[("value-size", "0-300000")]);
    let names = Names::new(&workload);
    for number in 0..50 {
        let bytes = names.value_bytes(number);
        let good = value(&names, number, bytes);
        assert!(names.verify(number, &good));
        assert!(!names.verify(number + 1, &good), "of another key");
        assert!(!names.verify(number, &value(&names, number, bytes + 1)), "of another size");
        let cut = &good[..good.len().saturating_sub(1)];
        assert!(good.is_empty() || !names.verify(number, cut), "cut off");
        for at in [0, 7, 8, 9, good.len() / 2, good.len().saturating_sub(1)] {
            let mut bad = good.clone();
            if let Some(byte) = bad.get_mut(at) {
                *byte ^= 1;
                assert!(!names.verify(number, &bad), "byte {at} of {bytes} altered");
            }
        }
    }
    let mut other = Workload::clone(&workload);
    other.set("population-seed", "2").unwrap();
    let other = Names::new(&Arc::new(other));
    assert!(!other.verify(3, &value(&names, 3, names.value_bytes(3))), "of another seed");
}

#[test]
fn values_of_any_size_are_verified_where_requests_choose_it() {
    let settings = [("value-size", "0-300"), ("value-size-per", "request")];
    let names = Names::new(&made("uniform", &settings));
    assert!(names.verifies());
    for bytes in [0, 1, 7, 8, 9, 100, 65_535, 65_536, 200_000] {
        let good = value(&names, 5, bytes);
        assert!(names.verify(5, &good), "{bytes}");
        assert!(bytes < 2 || !names.verify(6, &good), "{bytes}");
        assert!(bytes < 3 || !names.verify(5, &good[..good.len() - 1]), "{bytes}");
    }
}

#[test]
fn what_was_appended_to_is_verified_piece_by_piece() {
    let settings = [("mix", "get=1,append=1"), ("value-size", "100")];
    let names = Names::new(&made("uniform", &settings));
    let one = value(&names, 5, 100);
    let mut three = one.repeat(3);
    assert!(names.verifies() && names.verify(5, &one) && names.verify(5, &three));
    assert!(!names.verify(5, &three[..299]) && !names.verify(5, &[]));
    three[150] ^= 1;
    assert!(!names.verify(5, &three));
    let settings = [settings[0], ("value-size", "1-100"), ("value-size-per", "request")];
    assert!(!Names::new(&made("uniform", &settings)).verifies());
}

#[test]
fn values_can_be_looked_at() {
    let names = Names::new(&made("uniform", &[]));
    let all = value(&names, 9, 100_000);
    assert!(all.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-".contains(byte)));
}

#[test]
fn numbers_are_written_in_decimal() {
    let workload = made("uniform", &[("keys", &KEYS_MAX.to_string()), ("key-size", "13")]);
    let names = Names::new(&workload);
    let powers = (0..13).map(|n| 10_u64.pow(n));
    let near = powers.flat_map(|power| [power - 1, power, power + 1, power * 7 / 3]);
    let spread = (0..200_000).map(|n| n * 5_497_533);
    for number in near.chain(spread).chain([KEYS_MAX - 1]).filter(|number| *number < KEYS_MAX) {
        assert_eq!(key(&names, number), format!("{number:013}").into_bytes());
    }
}
