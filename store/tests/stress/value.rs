//! Values that contain their key, version and length; all other bytes are derived from these three.

use store::{Hit, Value};

/// Bytes of a value's head: key, version and length.
pub(crate) const HEAD_BYTES: usize = 16;

pub(crate) fn make(key: u32, version: u64, len: usize) -> Vec<u8> {
    let len = len.max(HEAD_BYTES);
    let mut value = Vec::with_capacity(len + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
    let mut word = rest(key, version);
    while value.len() < len {
        value.extend_from_slice(&word.to_le_bytes());
        word = next(word);
    }
    value.truncate(len);
    value
}

/// The version in a value of `key`; an error if the value is torn or belongs to another key.
pub(crate) fn version(key: u32, value: &[u8]) -> Result<u64, String> {
    let torn = |what: &str| Err(format!("{what} in a value of key {key}, {} bytes", value.len()));
    let Some((head, tail)) = value.split_at_checked(HEAD_BYTES) else { return torn("no head") };
    let version = u64::from_le_bytes(head[4..12].try_into().unwrap());
    if head[..4] != key.to_le_bytes() {
        return torn("another key");
    }
    if u32::from_le_bytes(head[12..].try_into().unwrap()) as usize != value.len() {
        return torn("another length");
    }
    let mut word = rest(key, version);
    for piece in tail.chunks(8) {
        if *piece != word.to_le_bytes()[..piece.len()] {
            return torn("other bytes");
        }
        word = next(word);
    }
    Ok(version)
}

pub(crate) fn bytes(hit: &Hit<'_>) -> Vec<u8> {
    match &hit.value {
        Value::Log(value) => value.to_vec(),
        Value::Frames(pinned, tail) => pinned.pieces().chain([*tail]).flatten().copied().collect(),
    }
}

fn rest(key: u32, version: u64) -> u64 {
    next(u64::from(key) << 40 ^ version ^ 0x9e37_79b9_7f4a_7c15)
}

fn next(word: u64) -> u64 {
    word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}
