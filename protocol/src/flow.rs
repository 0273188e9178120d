//! Flows, which steer requests to columns (a server's threads), and the column of each key.
//!
//! ```text
//! h = 2166136261
//! for each byte of the key: h = (h xor byte) * 16777619          all of it modulo 2^32
//! h = (h xor h >> 16) * 0x85ebca6b
//! h = (h xor h >> 13) * 0xc2b2ae35
//! column = (h xor h >> 16) modulo columns
//! ```
//!
//! Where: a client chooses a request's flow by this function. A server shows the function's name
//! and version but never calls the function, because any column can answer for any key.
//! Invariant: the function has no seed, and its result for a key never changes: a changed function
//! would need another name or version. The function does not place keys in the store's index. The
//! tests below have test vectors for clients in other languages.
//! Source: FNV-1a of 32 bits (Fowler, Noll, Vo) and the final mix of MurmurHash3 (Appleby,
//! `fmix32`). FNV-1a alone would be unsuitable, and so would CRC-32: clients choose a server by
//! such a hash modulo the number of servers, so all keys of one server would map to a few columns.

use std::num::NonZeroU16;

/// The function's name, shown by `stats settings`.
pub const NAME: &str = "fnv1a-fmix32";
/// The function's version.
pub const VERSION: u32 = 1;

/// The flow of a request that any column may execute.
pub const ANY: u16 = 0;

/// Returns the index of a key's column if there are `columns` columns.
#[inline]
#[must_use]
pub fn column(key: &[u8], columns: NonZeroU16) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u16's")]
    let column = (finish(fnv1a(key)) % u32::from(columns.get())) as u16;
    column
}

/// Returns the flow that steers to `column`; `ANY` for 65,535, whose flow does not fit 16 bits.
#[inline]
#[must_use]
pub fn to_column(column: u16) -> u16 {
    column.wrapping_add(1)
}

#[inline]
fn fnv1a(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

#[inline]
fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u32 = 20_000;

    fn columns(count: u16) -> NonZeroU16 {
        NonZeroU16::new(count).unwrap()
    }

    /// Returns how far the chi-square of the counts exceeds its mean, in standard deviations.
    fn unevenness(columns: u16, place: impl Fn(&[u8]) -> u16, keys: &[Vec<u8>]) -> f64 {
        let mut counts = vec![0_u32; columns.into()];
        keys.iter().for_each(|key| counts[usize::from(place(key))] += 1);
        let expected = keys.len() as f64 / f64::from(columns);
        let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
        let freedom = f64::from(columns - 1);
        (counts.iter().map(square).sum::<f64>() - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn clients_in_other_languages_find_these_columns() {
        let all_bytes: Vec<u8> = (0..250).collect();
        let rows: [(&[u8], u32, [u16; 5]); 7] = [
            (b"", 0xab3e_7c0b, [0, 1, 2, 3, 11]),
            (b"a", 0x1a80_b1b3, [0, 1, 0, 3, 51]),
            (b"foobar", 0x0c0d_a6dc, [0, 0, 0, 0, 28]),
            (b"key:1", 0xd72c_6d51, [0, 1, 2, 1, 17]),
            (b"user:1000000:profile", 0xfa0f_5b7b, [0, 1, 2, 3, 59]),
            (b"\xff\x00", 0xd63e_dccf, [0, 1, 1, 3, 15]),
            (&all_bytes, 0xacfd_b559, [0, 1, 2, 1, 25]),
        ];
        for (key, hash, expected) in rows {
            assert_eq!(finish(fnv1a(key)), hash, "{key:?}");
            assert_eq!([1, 2, 3, 4, 64].map(|count| column(key, columns(count))), expected);
        }
        assert_eq!(column(b"user:1000000:profile", columns(u16::MAX)), 21_899);
        assert_eq!([0, 1, 65_534, 65_535].map(to_column), [1, 2, 65_535, ANY]);
        // Test vectors that the authors of FNV-1a published.
        assert_eq!(
            (fnv1a(b""), fnv1a(b"a"), fnv1a(b"foobar")),
            (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968)
        );
    }

    #[test]
    fn keys_as_clients_name_them_are_spread_evenly_over_any_number_of_columns() {
        let named = |name: &dyn Fn(u32) -> String| -> Vec<Vec<u8>> {
            (0..KEYS).map(|number| name(number).into_bytes()).collect()
        };
        let kinds = [
            named(&|number| format!("key:{number}")),
            named(&|number| format!("{number:016}")),
            named(&|number| format!("memtier-{}", number * 64)),
            named(&|number| {
                format!("user:{}:session:{:08x}", number / 7, number.wrapping_mul(2_654_435_761))
            }),
            named(&|number| {
                format!("/img/{:03}/{:03}.png?w={}", number % 100, number / 100, 1 << (number % 11))
            }),
            (0..KEYS).map(|number| number.to_le_bytes().to_vec()).collect(),
            (0..KEYS).map(|number| [&[b'x'; 246][..], &number.to_be_bytes()].concat()).collect(),
        ];
        for (kind, keys) in kinds.iter().enumerate() {
            for count in 2..=64 {
                let far = unevenness(count, |key| column(key, columns(count)), keys);
                assert!(far < 5.0, "kind {kind} over {count} columns: {far} deviations");
            }
        }
    }

    #[test]
    fn the_keys_of_one_server_of_several_are_spread_too_and_were_not_without_the_finish() {
        for servers in [2_u32, 4, 8, 16] {
            let keys: Vec<Vec<u8>> = (0..)
                .map(|number: u32| format!("key:{number}").into_bytes())
                .filter(|key| fnv1a(key).is_multiple_of(servers))
                .take(KEYS as usize)
                .collect();
            for count in [2_u16, 4, 8, 16, 64] {
                let far = unevenness(count, |key| column(key, columns(count)), &keys);
                assert!(far < 5.0, "{count} columns of {servers} servers: {far} deviations");
                let bare = |key: &[u8]| u16::try_from(fnv1a(key) % u32::from(count)).unwrap();
                assert!(unevenness(count, bare, &keys) > 1000.0);
            }
        }
    }
}
