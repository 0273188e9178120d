//! Base64 of keys (meta flag `b`). Accepts the same malformed texts as memcached.
//!
//! Where: the executor decodes a base64 key for the lookup; the answer encodes the key again.
//! Invariant: `decode` does not allocate, and its result has at most 3/4 of its input's length.
//! Source: memcached 1.6.45 `base64.c`: its decoder skips bytes outside the alphabet, and stops
//! after the first block with padding.

use crate::KEY_BYTES_MAX;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A decoded key.
#[derive(Clone, Copy, Debug)]
pub struct DecodedKey {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

impl DecodedKey {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }
}

/// Decodes `text`. Returns `None` if memcached would refuse `text`.
#[must_use]
pub fn decode(text: &[u8]) -> Option<DecodedKey> {
    let symbols = || text.iter().filter_map(|&byte| Some((byte, sextet(byte)?)));
    let count = symbols().count();
    if count == 0 || count % 4 != 0 {
        return None;
    }
    let mut key = DecodedKey { bytes: [0; KEY_BYTES_MAX], len: 0 };
    let mut block = [0u8; 4];
    let mut filled = 0;
    let mut padding = 0;
    for (byte, sextet) in symbols() {
        padding += usize::from(byte == b'=');
        block[filled] = sextet;
        filled += 1;
        if filled < 4 {
            continue;
        }
        filled = 0;
        let bytes = [
            (block[0] << 2) | (block[1] >> 4),
            (block[1] << 4) | (block[2] >> 2),
            (block[2] << 6) | block[3],
        ];
        for &byte in bytes.get(..3usize.checked_sub(padding)?)? {
            key.push(byte)?;
        }
        if padding == 3 {
            return None;
        }
        if padding > 0 {
            break;
        }
    }
    (key.len > 0).then_some(key)
}

/// Appends `key` in base64.
pub fn encode(key: &[u8], out: &mut Vec<u8>) {
    for block in key.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|index| block.get(index).copied().unwrap_or(0));
        let symbols = [a >> 2, ((a & 3) << 4) | (b >> 4), ((b & 15) << 2) | (c >> 6), c & 63];
        for (index, sextet) in symbols.into_iter().enumerate() {
            let symbol = ALPHABET[usize::from(sextet)];
            out.push(if index <= block.len() { symbol } else { b'=' });
        }
    }
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT_BYTES_MAX: usize = KEY_BYTES_MAX.div_ceil(3) * 4;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        decode(text).map(|key| key.key().to_vec())
    }

    #[test]
    fn keys_come_back_as_they_went() {
        for len in 1..=187 {
            let key: Vec<u8> =
                (0..len).map(|index| u8::try_from(index * 7 % 256).unwrap()).collect();
            let mut text = Vec::new();
            encode(&key, &mut text);
            assert!(text.len() <= TEXT_BYTES_MAX);
            assert_eq!(decoded(&text).unwrap(), key);
        }
    }

    #[test]
    fn odd_texts_are_taken_as_memcached_takes_them() {
        assert_eq!(decoded(b"Zm9v").unwrap(), b"foo");
        assert_eq!(decoded(b"Z!m9\xffv").unwrap(), b"foo");
        assert_eq!(decoded(b"Zg==Zm9v").unwrap(), b"f");
        assert_eq!(decoded(b"Zm8="), Some(b"fo".to_vec()));
        assert_eq!(decoded(b"Z==="), None);
        assert_eq!(decoded(b"===="), None);
        assert_eq!(decoded(b"Zm9"), None);
        assert_eq!(decoded(b"!!!!"), None);
    }
}
