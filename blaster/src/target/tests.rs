//! Tests of target texts, valid and invalid.
//!
//! Where: unit tests of `target`. Invariant: the error for an invalid text contains the text.

use super::*;

fn place(text: &str) -> Place {
    parse(text, Family::Any).unwrap().place
}

fn tcp(text: &str) -> Place {
    Place::Tcp(text.parse().unwrap())
}

#[test]
fn targets_are_found() {
    assert_eq!(place("127.0.0.1:7000"), tcp("127.0.0.1:7000"));
    assert_eq!(place("127.0.0.1"), tcp("127.0.0.1:11211"));
    assert_eq!(place("tcp://10.1.2.3"), tcp("10.1.2.3:11211"));
    assert_eq!(place("[::1]:11212"), tcp("[::1]:11212"));
    assert_eq!(place("::1"), tcp("[::1]:11211"));
    assert_eq!(place("redis://127.0.0.1"), tcp("127.0.0.1:6379"));
    assert_eq!(place("udp://[fe80::1]"), Place::Udp("[fe80::1]:11211".parse().unwrap()));
    let address = "10.1.2.3:11211".parse().unwrap();
    for (mode, attach) in
        [("", Attach::Any), ("?mode=native", Attach::Native), ("?mode=generic", Attach::Generic)]
    {
        let bypass = Bypass { interface: "eth0".to_owned(), attach };
        let written = bypass.target_text(address);
        assert_eq!(written, format!("xdp://eth0/{address}{mode}"));
        assert_eq!(place(&written), Place::Xdp(bypass.clone(), address));
        let weighted = parse(&format!("xdp://eth0/10.1.2.3/3{mode}"), Family::Any).unwrap();
        assert_eq!((weighted.place, weighted.weight), (Place::Xdp(bypass, address), 3));
    }
    for text in ["unix:/tmp/a.sock", "unix:///tmp/a.sock"] {
        assert_eq!(place(text), Place::Unix("/tmp/a.sock".into()), "{text}");
    }
    let target = parse("redis://127.0.0.1:1/3", Family::Any).unwrap();
    assert_eq!((target.host.as_str(), target.port(), target.weight), ("127.0.0.1", 1, 3));
    assert!(target.is_redis);
    for (text, is_redis) in [("unix:/a/b,7", false), ("redis://unix:/a/b,7", true)] {
        let socket = parse(text, Family::Any).unwrap();
        assert_eq!((socket.host.as_str(), socket.port(), socket.weight), ("/a/b", 0, 7));
        assert_eq!(socket.is_redis, is_redis);
    }
}

#[test]
fn of_a_names_addresses_the_one_that_listens_is_taken() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let named = format!("localhost:{}", address.port());
    assert_eq!(place(&named), Place::Tcp(address));
    // `:PORT` means a port of this machine. A number without a colon is refused.
    assert_eq!(place(&format!(":{}", address.port())), Place::Tcp(address));
    let message = parse("15200", Family::Any).unwrap_err().to_string();
    assert_eq!(message, "15200: a port without a host; for a port of this machine write :15200");
    assert_eq!(parse(&named, Family::V4).unwrap().place, Place::Tcp(address));
    assert_eq!(place(&format!("udp://{named}")), Place::Udp(address));
}

#[test]
fn what_is_no_target_is_refused() {
    let wrong = [
        "",
        ":",
        "a b",
        "host:",
        "host:0",
        "host:65536",
        "host:+1",
        "host:1:2",
        "xdp://eth0",
        "xdp://eth0/host?mode=fast",
        "xdp://eth0?mode=generic",
        "udp://host:1?mode=generic",
        "[::1",
        "[::1]x",
        "[::1]:",
        "[host]:1",
        "ftp://host",
        "127.0.0.1:1/0",
        "127.0.0.1:1/x",
        "unix:",
        "127.0.0.1:1/1048577",
    ];
    for text in wrong {
        let error = parse(text, Family::Any).unwrap_err();
        assert!(matches!(error, TargetError::Form(..)), "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("{text}: ")), "{error}");
    }
    let long = format!("unix:/{}", "x".repeat(107));
    assert!(matches!(parse(&long, Family::Any), Err(TargetError::Form(..))));
    let family = parse("127.0.0.1", Family::V6).unwrap_err();
    assert!(matches!(family, TargetError::Family(..)), "{family}");
    // The name is too long for a host name, so resolving it fails without a query to a name server.
    let unknown = parse(&"x".repeat(300), Family::Any).unwrap_err();
    assert!(matches!(unknown, TargetError::Unknown(..)), "{unknown}");
}
