//! Reads whole traces, and traces with each possible fault.
//!
//! Where: tests of `trace`. Invariant: each fault gives an error that names the fault.

use super::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

fn decode(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::decode(Path::new("a.u32.zst"), bytes)
}

fn packed(numbers: &[u32]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest)
}

#[test]
fn keys_are_numbered_in_order_of_first_appearance() {
    let trace = decode(&packed(&[7, 9, 7, u32::MAX, 9, 0])).unwrap();
    assert_eq!(trace.requests, [0, 1, 0, 2, 1, 3]);
    assert_eq!(trace.keys, 4);
}

#[test]
fn long_traces_and_several_frames_are_read_whole() {
    let numbers: Vec<u32> = (0..100_000).collect();
    assert_eq!(decode(&packed(&numbers)).unwrap().requests, numbers);
    let two = [packed(&numbers[..60_000]), packed(&numbers[60_000..])].concat();
    assert_eq!(decode(&two).unwrap().requests, numbers);
}

#[test]
fn what_is_no_trace_is_refused_with_the_reason() {
    let numbers: Vec<u32> = (0..50_000).map(|number| number * 77_777).collect();
    let whole = packed(&numbers);
    for cut in [4, 5, 20, whole.len() / 2, whole.len() - 1] {
        let error = decode(&whole[..cut]).unwrap_err();
        assert!(matches!(error, TraceError::Damaged(..)), "cut at {cut}: {error}");
    }
    let odd = compress_to_vec([1_u8, 2, 3, 4, 5].as_slice(), CompressionLevel::Fastest);
    assert!(matches!(decode(&odd).unwrap_err(), TraceError::Odd(_, 1)));
    assert!(matches!(decode(&[]).unwrap_err(), TraceError::Empty(_)));
    assert!(matches!(decode(&packed(&[])).unwrap_err(), TraceError::Empty(_)));
    assert!(matches!(decode(b"id,time\n1,2\n").unwrap_err(), TraceError::NotZstd(_)));
    assert!(matches!(decode(&[0x28]).unwrap_err(), TraceError::NotZstd(_)));
    let missing = Trace::read(Path::new("no/such/trace.u32.zst")).unwrap_err();
    assert!(matches!(missing, TraceError::Io(..)));
}

#[test]
fn copies_stand_side_by_side() {
    let trace = Trace::new("a", vec![5, 6, 5]).copied(2).unwrap();
    assert_eq!((trace.requests, trace.keys), (vec![0, 1, 2, 3, 0, 1], 4));
    assert!(Trace::new("a", vec![1; 1000]).copied(u32::MAX).is_err());
}
