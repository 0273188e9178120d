//! Tests of the rule that decides which requests may leave their value in chunks.

use super::*;

#[test]
fn a_single_request_that_stores_a_value_has_lengths() {
    let lengths = |request: &str, more: usize| {
        let more = vec![b'x'; more];
        // The tail begins at any place of a piece, or is cut.
        let cut = |at: usize| {
            let (one, two) = more.split_at(at.min(more.len()));
            stored_parts(ProtocolMode::Auto, request.as_bytes(), [request.as_bytes(), one, two])
                .map(|it| (it.header_bytes, it.value_bytes))
        };
        let all = cut(0);
        assert!((0..more.len()).all(|at| cut(at) == all), "{request}");
        all
    };
    assert_eq!(lengths("set k 0 0 3000\r\nvalue", 2997), Some((16, 3000)));
    assert_eq!(lengths("ms k 3000\r\nvalue", 2997), Some((11, 3000)));
    assert_eq!(lengths("set k 0 0 3000\r\nvalue", 2998), None, "two requests");
    assert_eq!(lengths("append k 0 0 3000\r\nvalue", 2997), None, "an old value");
    assert_eq!(lengths("get k\r\n", 0), None, "no value");
}
