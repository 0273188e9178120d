//! Tests of the rule that decides which requests may leave their value in chunks.

use super::*;

#[test]
fn a_single_request_that_stores_a_value_has_lengths() {
    let lengths = |request: &str, more: usize| {
        let all_bytes = request.len() + more;
        stored_lengths(ProtocolMode::Auto, request.as_bytes(), all_bytes)
            .map(|it| (it.header_bytes, it.value_bytes))
    };
    assert_eq!(lengths("set k 0 0 3000\r\nvalue", 2997), Some((16, 3000)));
    assert_eq!(lengths("ms k 3000\r\nvalue", 2997), Some((11, 3000)));
    assert_eq!(lengths("set k 0 0 3000\r\nvalue", 2998), None, "two requests");
    assert_eq!(lengths("append k 0 0 3000\r\nvalue", 2997), None, "an old value");
    assert_eq!(lengths("get k\r\n", 0), None, "no value");
}
