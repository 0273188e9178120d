//! Tests of reading traces: valid traces, and traces with each kind of error.
//!
//! Where: unit tests of `replay`. Invariant: an error in a trace names the line.

use super::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

const ROWS: &str = "\
timestamp,anonymized key,key size,value size,client id,operation,TTL
10,a:b,3,0,1,get,0
10,a:b,3,100,1,set,60
10,c,d,5,7,2,cas,99999999
10,a:b,3,90,1,append,0
13,c,d,5,7,1,delete,0
12,e,300,4294967297,1,incr,0
14,e,300,1,1,prepend,0
14,a:b,3,9,1,add,7
14,c,d,5,8,2,replace,0
";

fn decode(text: &str, most: u64) -> Result<Replay, (u64, String)> {
    Replay::decode(Path::new("a.csv"), text.as_bytes(), most)
}

#[test]
fn a_cache_trace_is_read() {
    let replay = decode(ROWS, 0).unwrap();
    assert_eq!((replay.keys, replay.requests.as_slice()), (3, &[0, 0, 1, 0, 1, 2, 2, 0, 1][..]));
    let details = replay.details.as_ref().unwrap();
    let operations: Vec<_> = details
        .operations
        .iter()
        .map(|one| (one.verb.name(), one.value_bytes, one.exptime_s))
        .collect();
    let expected = [
        ("get", 0, 0),
        ("set", 100, 60),
        ("set", 7, EXPTIME_S_MAX),
        ("append", 90, 0),
        ("delete", 0, 0),
        ("set", VALUE_BYTES_MAX, 0),
        ("append", 1, 0),
        ("add", 9, 7),
        ("replace", 8, 0),
    ];
    assert_eq!(operations, expected);
    assert_eq!(details.replaced, 3);
    assert_eq!(details.key_bytes, [3, 5, 250]);
    assert_eq!(details.value_bytes, [100, 7, VALUE_BYTES_MAX]);
    // The trace has four requests in the first second, then a pause. The row of second 12 comes
    // after rows of second 13, so this row counts for second 13.
    let mut cursor = 0;
    let due: Vec<_> = (0..9).map(|n| replay.due_ns(n, &mut cursor).unwrap() / 1_000_000).collect();
    assert_eq!(due, [0, 250, 500, 750, 3000, 3500, 4000, 4333, 4666]);
    assert_eq!(replay.due_ns(1, &mut cursor), Some(250_000_000));
    assert_eq!(replay.length_ns(), Some(5_000_000_000));
    assert_eq!(decode(ROWS, 2).unwrap().requests, [0, 0]);
}

#[test]
fn what_is_no_trace_is_refused_with_its_line() {
    for row in [
        "x,k,1,1,1,get,0",
        "1,k,1,1,1,touch,0",
        "1,k,1,1,get,0",
        "1,k,1,-1,1,get,0",
        "1,k,1,1,x,get,0",
        "1",
        "",
    ] {
        let error = decode(&format!("1,k,1,1,1,get,0\n{row}\n"), 0).unwrap_err();
        assert_eq!(error.0, 2, "{row}");
        assert!(error.1.ends_with(&format!(",operation,ttl: {row}")), "{}", error.1);
    }
    assert_eq!(decode("", 0), Err((1, "the trace has no requests".to_owned())));
    assert_eq!(decode("timestamp,key\n", 0), Err((2, "the trace has no requests".to_owned())));
    let long = format!("1,{},1,1,1,get,0", "k".repeat(4096));
    assert_eq!(decode(&long, 0), Err((1, "the line has more than 4096 bytes".to_owned())));
}

#[test]
fn key_traces_are_read_by_their_name() {
    let folder = std::env::temp_dir().join(format!("kvblaster-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("made.u32.zst");
    let bytes: Vec<u8> = [9_u32, 4, 9].iter().flat_map(|key| key.to_le_bytes()).collect();
    let packed = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
    std::fs::write(&path, packed).unwrap();
    let files = Files::here("");
    let whole = Replay::read(&files, &path, 0).unwrap();
    let first = Replay::read(&files, &path, 1).unwrap();
    let missing = Replay::read(&files, &folder.join("none"), 0).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((whole.keys, whole.requests, whole.details), (2, vec![0, 1, 0], None));
    assert_eq!((first.keys, first.requests), (1, vec![0]));
    assert!(missing.to_string().starts_with("trace: "), "{missing}");
}
