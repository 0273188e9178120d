//! Reads decimal numbers by memcached's rules, which differ from field to field.
//!
//! Where: called for every number on a command line.
//! Invariant: a number that memcached 1.6.45 refuses gives `None`; any other number is truncated to
//! the same bits as in memcached.
//! Source: memcached 1.6.45 `mcmc_toktou32`, `mcmc_toktou64`, `mcmc_tokto32` (strict: the whole
//! token is a number) and `safe_strtoul`, `safe_strtol` (loose: white space and a sign may precede
//! the digits; only for flags and exptime of storage commands).

/// Maximum number of characters of a strict 32-bit number, sign included.
const U32_BYTES_MAX: usize = 11;

/// Maximum number of digits of a strict 64-bit number.
const U64_BYTES_MAX: usize = 22;

/// Reads digits only; an empty token is 0, as in memcached.
#[must_use]
pub fn strict_u32(token: &[u8]) -> Option<u32> {
    if token.len() > U32_BYTES_MAX {
        return None;
    }
    let mut sum = 0u32;
    for &byte in token {
        sum = sum.checked_mul(10)?.checked_add(u32::from(digit(byte)?))?;
    }
    Some(sum)
}

/// Reads digits only; an empty token is 0.
#[must_use]
pub fn strict_u64(token: &[u8]) -> Option<u64> {
    if token.len() > U64_BYTES_MAX {
        return None;
    }
    let mut sum = 0u64;
    for &byte in token {
        sum = sum.checked_mul(10)?.checked_add(u64::from(digit(byte)?))?;
    }
    Some(sum)
}

/// Reads digits, after at most one `-`; an empty token and `-` are 0.
#[must_use]
pub fn strict_i32(token: &[u8]) -> Option<i32> {
    if token.len() > U32_BYTES_MAX {
        return None;
    }
    let (negative, digits) = match token {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let mut sum = 0i64;
    for &byte in digits {
        // The token has at most 11 digits, so the sum fits into 64 bits.
        sum = sum * 10 + i64::from(digit(byte)?);
    }
    i32::try_from(if negative { -sum } else { sum }).ok()
}

/// Reads a number like `safe_strtoul`, truncated to 32 bits. Refuses a number that does not fit 64
/// bits, and a negative number that wraps around to 2^63 or more. `text` is the line from the token
/// on, because `strtoul` reads beyond a token of white space.
#[must_use]
pub fn loose_u32(text: &[u8]) -> Option<u32> {
    let (negative, magnitude) = scan(text)?;
    if !negative {
        return Some(truncated(magnitude));
    }
    let wrapped = magnitude.wrapping_neg();
    if wrapped >> 63 == 1 { None } else { Some(truncated(wrapped)) }
}

/// Reads a number like `safe_strtol`, truncated to 32 bits. Refuses a number that exceeds an `i64`.
#[must_use]
pub fn loose_i32(text: &[u8]) -> Option<i32> {
    let (negative, magnitude) = scan(text)?;
    if negative {
        if magnitude > 1 << 63 {
            return None;
        }
        return Some(truncated(magnitude.wrapping_neg()).cast_signed());
    }
    if magnitude > i64::MAX.cast_unsigned() {
        return None;
    }
    Some(truncated(magnitude).cast_signed())
}

/// Returns the low 32 bits, as a C assignment to a 32-bit variable does.
#[expect(clippy::cast_possible_truncation, reason = "memcached truncates")]
fn truncated(number: u64) -> u32 {
    number as u32
}

/// Reads sign and magnitude like C's `strtoul`. Only white space or NUL may follow the digits.
fn scan(text: &[u8]) -> Option<(bool, u64)> {
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        if !is_space(*byte) {
            break;
        }
        rest = tail;
    }
    let negative = rest.first() == Some(&b'-');
    if let [b'-' | b'+', tail @ ..] = rest {
        rest = tail;
    }
    let mut magnitude = u64::from(digit(*rest.first()?)?);
    rest = &rest[1..];
    while let [byte, tail @ ..] = rest {
        let Some(digit) = digit(*byte) else { break };
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
        rest = tail;
    }
    match rest.first() {
        None | Some(0) => Some((negative, magnitude)),
        Some(&byte) if is_space(byte) => Some((negative, magnitude)),
        Some(_) => None,
    }
}

#[inline]
fn digit(byte: u8) -> Option<u8> {
    let digit = byte.wrapping_sub(b'0');
    (digit < 10).then_some(digit)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_numbers_take_digits_only_and_refuse_what_does_not_fit() {
        assert_eq!(strict_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(strict_u32(b"4294967296"), None);
        assert_eq!(strict_u32(b"00000000001"), Some(1));
        assert_eq!(strict_u32(b"000000000001"), None);
        assert_eq!(strict_u32(b"+1"), None);
        assert_eq!(strict_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(strict_u64(b"18446744073709551616"), None);
        assert_eq!(strict_u64(b"0000000000000000000001"), Some(1));
        assert_eq!(strict_u64(b"00000000000000000000001"), None);
        assert_eq!(strict_u64(b"-1"), None);
        assert_eq!(strict_i32(b"2147483647"), Some(i32::MAX));
        assert_eq!(strict_i32(b"2147483648"), None);
        assert_eq!(strict_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(strict_i32(b"-2147483649"), None);
        assert_eq!(strict_i32(b"-"), Some(0));
        assert_eq!(strict_i32(b"--1"), None);
        assert_eq!(strict_i32(b"1.5"), None);
    }

    #[test]
    fn loose_numbers_are_c_numbers() {
        assert_eq!(loose_u32(b"0 0 5"), Some(0));
        assert_eq!(loose_u32(b"\t +7\tx"), Some(7));
        assert_eq!(loose_u32(b"4\0x"), Some(4));
        assert_eq!(loose_u32(b"4x"), None);
        assert_eq!(loose_u32(b"- 1"), None);
        assert_eq!(loose_u32(b"-1"), None);
        assert_eq!(loose_u32(b"-18446744073709551615 "), Some(1));
        assert_eq!(loose_u32(b"18446744073709551615"), Some(u32::MAX));
        assert_eq!(loose_u32(b"18446744073709551616"), None);
        assert_eq!(loose_u32(b"4294967296"), Some(0));
        assert_eq!(loose_i32(b"111111111111\r\n"), Some(-558_038_585));
        assert_eq!(loose_i32(b"-1 3"), Some(-1));
        assert_eq!(loose_i32(b"9223372036854775808"), None);
        assert_eq!(loose_i32(b"-9223372036854775808"), Some(0));
        assert_eq!(loose_i32(b"-9223372036854775809"), None);
        assert_eq!(loose_i32(b""), None);
    }
}
