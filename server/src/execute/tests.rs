//! Tests of the replies to whole commands, in one process and with the test's own clock.
//!
//! Where: a session, the executor and a store, without a socket.
//! Invariant: every reply here was first seen from memcached 1.6.45, except the replies to commands
//! for mechanisms that this server does not have.
//! Source: replies of memcached 1.6.45.

use std::sync::Arc;

use columns::Executor as _;
use columns::batch::{self, End, Input, Inputs};
use columns::budget::{Budget, StopReason};
use columns::input;
use columns::limits::OUT_BYTES_MAX;
use columns::out::{Mark, Out};
use columns::turn::TurnState;
use protocol::{LINE_BYTES_MAX, ProtocolMode, Session, Step};
use store::Store;

use super::{Context, NextStep, begin, execute, execute_with_draft};
use crate::clock::Clock;
use crate::shared::Shared;
use crate::start::settings::Settings;

const UNIX_SECONDS: i64 = 1_800_000_000;

struct Server {
    turn: TurnState<Context>,
    session: Session,
}

impl Server {
    fn new(settings: Settings) -> Server {
        let clock = Clock::new(UNIX_SECONDS);
        let store = Store::new(&settings.store_config()).unwrap();
        let shared = Shared::new(Arc::new(settings), Arc::clone(&store), clock.process_started);
        let (counters, columns) = (Arc::clone(&shared.requests[0]), Arc::clone(&shared.columns));
        let context = Context::new(store.column(), counters, shared, clock);
        let turn = TurnState::new(context, (columns, 0), Arc::default());
        Server { turn, session: Session::new(ProtocolMode::Ascii) }
    }

    fn ready() -> Server {
        Server::new(Settings::default())
    }

    fn later(&mut self, seconds: u32) {
        self.turn.executor.clock.now += seconds;
        self.turn.executor.store.set_now(self.turn.executor.clock.now);
    }

    /// Returns the reply to `input`, which consists of whole commands.
    fn reply(&mut self, input: &[u8]) -> Vec<u8> {
        let mut out = Out::default();
        let mut at = 0;
        while at < input.len() {
            match self.session.next(&input[at..]) {
                Step::Request(request, used) => {
                    at += used;
                    if execute(&mut self.turn.executor, &request, &mut out) == NextStep::Close {
                        break;
                    }
                }
                Step::Skip(used) => at += used,
                other => panic!("{other:?}"),
            }
        }
        bytes(&out)
    }

    #[track_caller]
    fn says(&mut self, exchanges: &[(&str, &str)]) {
        for (index, (asked, answered)) in exchanges.iter().enumerate() {
            let reply = self.reply(asked.as_bytes());
            let reply = String::from_utf8_lossy(&reply);
            assert_eq!(reply, *answered, "the answer to exchange {index}, {asked:?}");
        }
    }
}

fn bytes(out: &Out) -> Vec<u8> {
    let mut bytes = Vec::new();
    out.pieces(Mark::default(), out.mark(), None).for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}

#[test]
fn items_expire_when_they_are_told_to() {
    let mut server = Server::ready();
    server.says(&[
        ("set a 0 2 1\r\n1\r\n", "STORED\r\n"),
        ("set b 0 0 1\r\n2\r\n", "STORED\r\n"),
        ("set c 0 -1 1\r\n3\r\n", "STORED\r\n"),
        ("set d 0 1800000010 1\r\n4\r\n", "STORED\r\n"),
        ("set e 0 2592000 1\r\n5\r\n", "STORED\r\n"),
        ("set f 0 2592001 1\r\n6\r\n", "STORED\r\n"),
        ("get c f\r\n", "END\r\n"),
        ("touch b 3\r\n", "TOUCHED\r\n"),
    ]);
    server.later(1);
    server.says(&[(
        "get a b d\r\n",
        "VALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nVALUE d 0 1\r\n4\r\nEND\r\n",
    )]);
    server.later(1);
    server.says(&[("get a b\r\n", "VALUE b 0 1\r\n2\r\nEND\r\n")]);
    server.says(&[("gat 5 b\r\n", "VALUE b 0 1\r\n2\r\nEND\r\n"), ("mg b t\r\n", "HD t5\r\n")]);
    server.later(5);
    server.says(&[("get b\r\n", "END\r\n"), ("touch b 1\r\n", "NOT_FOUND\r\n")]);
    server.says(&[("mg d t\r\n", "HD t3\r\n")]);
    server.later(3);
    server.says(&[("get d\r\n", "END\r\n"), ("get e\r\n", "VALUE e 0 1\r\n5\r\nEND\r\n")]);
    server.later(2_592_000);
    server.says(&[("get e\r\n", "END\r\n")]);
}

#[test]
fn flush_all_takes_what_is_older_than_its_time() {
    let mut server = Server::ready();
    server.says(&[("set a 0 0 1\r\n1\r\n", "STORED\r\n"), ("flush_all 3\r\n", "OK\r\n")]);
    server.says(&[("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n")]);
    server.later(5);
    server.says(&[
        ("get a\r\n", "END\r\n"),
        ("set a 0 0 1\r\n2\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n"),
        // A time before the server's start cancels a planned flush.
        ("flush_all 3\r\n", "OK\r\n"),
        ("flush_all 2592001\r\n", "OK\r\n"),
    ]);
    server.later(5);
    server.says(&[
        ("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n"),
        // All items of this second are flushed, even those set after the `flush_all`.
        ("flush_all 1\r\n", "OK\r\n"),
        ("get a\r\n", "END\r\n"),
        ("set b 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("get b\r\n", "END\r\n"),
    ]);
    server.later(1);
    server.says(&[
        ("set b 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("get b\r\n", "VALUE b 0 1\r\n1\r\nEND\r\n"),
        ("flush_all\r\n", "OK\r\n"),
        ("get b\r\n", "END\r\n"),
        ("set b 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("get b\r\n", "VALUE b 0 1\r\n1\r\nEND\r\n"),
        ("flush_all -1\r\n", "OK\r\n"),
        ("get b\r\n", "END\r\n"),
        ("flush_all noreply\r\n", ""),
        ("flush_all 5 x noreply\r\n", ""),
        ("flush_all noreply 5\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    ]);
}

#[test]
fn flush_all_can_be_forbidden() {
    let mut server = Server::new(Settings { flush_enabled: false, ..Settings::default() });
    server.says(&[
        ("set a 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
        ("flush_all x\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
        ("flush_all noreply\r\n", ""),
        ("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n"),
    ]);
    assert_eq!(server.turn.executor.counters.flush_cmds.get(), 3);
}

#[test]
fn who_switches_detail_on_is_counted_from_the_next_request_on() {
    // If a column was idle for `REST_MS`, all requests of its next loop are sampled.
    for since_ms in [0, 1000] {
        let mut server = Server::ready();
        server.turn.executor.begin_loop(since_ms);
        server.says(&[("stats detail on\r\n", "OK\r\n"), ("set p:1 0 0 1\r\na\r\n", "STORED\r\n")]);
        assert_eq!(server.turn.executor.shared.prefixes.counts(b"p").asked.sets, 1, "{since_ms}");
        server.says(&[
            ("stats detail off\r\n", "OK\r\n"),
            ("get p:1\r\n", "VALUE p:1 0 1\r\na\r\nEND\r\n"),
        ]);
        assert_eq!(server.turn.executor.shared.prefixes.counts(b"p").asked.gets, 0, "{since_ms}");
    }
}

#[test]
fn without_cas_uniques_all_are_zero() {
    let mut server = Server::new(Settings { cas: false, ..Settings::default() });
    server.says(&[
        ("set a 0 0 1\r\n1\r\n", "STORED\r\n"),
        ("gets a\r\n", "VALUE a 0 1 0\r\n1\r\nEND\r\n"),
        ("cas a 0 0 1 0\r\n2\r\n", "EXISTS\r\n"),
        ("cas a 0 0 1 1\r\n2\r\n", "EXISTS\r\n"),
        ("ms a 1 c E5\r\n2\r\n", "HD c0\r\n"),
    ]);
}

#[test]
fn numbers_count() {
    let mut server = Server::ready();
    server.says(&[
        ("incr m 1\r\n", "NOT_FOUND\r\n"),
        ("set m 5 0 2\r\n10\r\n", "STORED\r\n"),
        ("decr m 1\r\n", "9\r\n"),
        ("get m\r\n", "VALUE m 5 2\r\n9 \r\nEND\r\n"),
        ("incr m 1\r\n", "10\r\n"),
        ("decr m 100\r\n", "0\r\n"),
        ("incr m 18446744073709551615\r\n", "18446744073709551615\r\n"),
        ("incr m 2 noreply\r\n", ""),
        ("get m\r\n", "VALUE m 5 20\r\n1                   \r\nEND\r\n"),
        ("set m 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("incr m 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
    ]);
    let counters = &server.turn.executor.counters;
    assert_eq!((counters.incr_hits.get(), counters.incr_misses.get()), (3, 1));
    assert_eq!(counters.decr_hits.get(), 2);
}

#[test]
fn meta_get_makes_wins_and_marks() {
    let mut server = Server::ready();
    server.says(&[
        ("mg d v q k\r\n", ""),
        ("mg d v k O1 t\r\n", "EN kd O1\r\n"),
        ("mg d N30 t v\r\n", "VA 0 t30 W\r\n\r\n"),
        ("mg d t N60 v k\r\n", "VA 0 t30 kd Z\r\n\r\n"),
        ("ms d 1 T60\r\nx\r\n", "HD\r\n"),
        ("mg d R30 v\r\n", "VA 1\r\nx\r\n"),
        ("mg d R70 v\r\n", "VA 1 W\r\nx\r\n"),
        ("mg d R70 v\r\n", "VA 1 Z\r\nx\r\n"),
        ("ms d 1 T60\r\nx\r\n", "HD\r\n"),
        ("md d I T30\r\n", "HD\r\n"),
        ("mg d v t\r\n", "VA 1 t30 X W\r\nx\r\n"),
        ("mg d v t\r\n", "VA 1 t30 Z X\r\nx\r\n"),
        ("ms e 2 E50\r\nhi\r\n", "HD\r\n"),
        ("md e I E60\r\n", "HD\r\n"),
        ("mg e c v t\r\n", "VA 2 c60 t-1 X W\r\nhi\r\n"),
        ("ms e 2 C55 I\r\nlo\r\n", "HD\r\n"),
        ("mg e v\r\n", "VA 2 Z X\r\nlo\r\n"),
        ("ms e 2 C18446744073709551615 I c\r\nhi\r\n", "EX c0\r\n"),
        ("ms e 2 I\r\nhi\r\n", "HD\r\n"),
        ("mg e v\r\n", "VA 2\r\nhi\r\n"),
        ("mg z N-1 f\r\n", "HD f0 W\r\n"),
        ("mg z\r\n", "EN\r\n"),
    ]);
    server.later(25);
    server.says(&[("mg d t T5 t q\r\n", "CLIENT_ERROR duplicate flag\r\n")]);
    server.says(&[("mg d t T7\r\n", "HD t5 Z X\r\n"), ("mg d t q\r\n", "HD t7 Z X\r\n")]);
}

#[test]
fn meta_set_has_modes() {
    let mut server = Server::ready();
    server.says(&[
        ("ms l 1 C5\r\n5\r\n", "NF\r\n"),
        ("ms l 1 MA k s c\r\n5\r\n", "NS kl s1 c0\r\n"),
        ("ms l 1 MR\r\n5\r\n", "NS\r\n"),
        ("ms l 1 MA N0 s\r\n5\r\n", "HD s1\r\n"),
        ("ms l 2 MP N0 s\r\nab\r\n", "HD s3\r\n"),
        ("ms l 1 ME\r\n6\r\n", "NS\r\n"),
        ("ms l 1 MR q\r\n6\r\n", ""),
        ("ms l 1 C0\r\n6\r\n", "EX\r\n"),
        ("ms l 1 C0 MA O9 s\r\n7\r\n", "HD O9 s2\r\n"),
        ("mg l v\r\n", "VA 2\r\n67\r\n"),
        ("ms l 1 MZ\r\n6\r\n", "CLIENT_ERROR invalid mode for ms M token\r\n"),
        (
            "ms l 1 q\r\n66\r\n",
            "CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\n",
        ),
        ("ms l 1 F\r\n6\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("ms l x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ]);
}

#[test]
fn meta_keys_may_be_base64() {
    let mut server = Server::ready();
    server.says(&[
        ("ms Zm9v 2 b k\r\nhi\r\n", "HD kZm9v b\r\n"),
        ("mg Zm9v b k v\r\n", "VA 2 kZm9v b\r\nhi\r\n"),
        ("mg foo k v\r\n", "VA 2 kZm9v b\r\nhi\r\n"),
        ("get foo\r\n", "VALUE foo 0 2\r\nhi\r\nEND\r\n"),
        ("ms Zm9v 2 b MA k s\r\nho\r\n", "HD kZm9v b s4\r\n"),
        ("mg foo k v\r\n", "VA 4 kfoo\r\nhiho\r\n"),
        ("md Zm9v b k\r\n", "HD kZm9v b\r\n"),
        ("mg YmFy b N30 k\r\n", "HD kbar W\r\n"),
        ("mg Zm9 b\r\n", "CLIENT_ERROR error decoding key\r\n"),
        ("ma Zm9 b\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n"),
    ]);
}

#[test]
fn meta_delete_empties_and_meta_arithmetic_counts() {
    let mut server = Server::ready();
    server.says(&[
        ("set i 7 0 3\r\nabc\r\n", "STORED\r\n"),
        ("md i x\r\n", "HD\r\n"),
        ("mg i v f t s\r\n", "VA 0 f0 t-1 s0\r\n\r\n"),
        ("md i x T50 F3 I\r\n", "HD\r\n"),
        ("mg i v f t s\r\n", "VA 0 f3 t50 s0 X W\r\n\r\n"),
        ("md i C1\r\n", "EX\r\n"),
        ("md i q\r\n", ""),
        ("md i q k O9\r\n", "NF ki O9\r\n"),
        ("ma g\r\n", "NF\r\n"),
        ("ma g N0 J10 v t\r\n", "VA 2 t-1\r\n10\r\n"),
        ("ma g N0 J10 v t\r\n", "VA 2 t-1\r\n11\r\n"),
        ("ma g D5 MD v\r\n", "VA 1\r\n6\r\n"),
        ("ma g D50 MD T30 v t\r\n", "VA 1 t30\r\n0\r\n"),
        ("ma g q\r\n", ""),
        ("ma g E123 c k O1\r\n", "HD c123 kg O1\r\n"),
        ("ma g C5 v\r\n", "EX\r\n"),
        ("ma g Mx\r\n", "CLIENT_ERROR invalid mode for ma M token\r\n"),
        ("ma h N30 T60 t\r\n", "HD t60\r\n"),
        ("mg h t\r\n", "HD t60\r\n"),
        ("md h\r\n", "HD\r\n"),
        ("ma h T60 N30 t\r\n", "HD t30\r\n"),
        ("mg h t\r\n", "HD t30\r\n"),
    ]);
}

#[test]
fn meta_tells_about_an_item() {
    let mut server = Server::ready();
    server.says(&[
        ("set f 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("mg f h l f s\r\n", "HD h0 l0 f5 s3\r\n"),
    ]);
    server.says(&[("mg f h u\r\n", "HD h1\r\n"), ("mn\r\n", "MN\r\n"), ("me g\r\n", "EN\r\n")]);
    let reply = server.reply(b"me f\r\n");
    assert!(reply.starts_with(b"ME f exp=-1 la=0 cas="));
    assert!(reply.windows(10).any(|part| part == b"fetch=yes "));
    assert_eq!(server.turn.executor.counters.meta_cmds.get(), 2);
}

#[test]
fn nothing_is_said_to_who_wants_no_reply() {
    let mut server = Server::ready();
    server.says(&[
        ("set a 0 0 1 noreply\r\n1\r\n", ""),
        ("add a 0 0 1 noreply\r\n1\r\n", ""),
        ("append a 0 0 1 noreply\r\n2\r\n", ""),
        ("set a 0 0 1 noreply\r\n12\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("incr a 1 noreply\r\n", ""),
        ("touch a 0 noreply\r\n", ""),
        ("verbosity 0 noreply\r\n", ""),
        ("lru_crawler noreply\r\n", ""),
        ("nonsense noreply\r\n", ""),
        ("get a noreply\r\n", "VALUE a 0 2\r\n13\r\nEND\r\n"),
        ("delete a noreply\r\n", ""),
        ("get a\r\n", "END\r\n"),
    ]);
}

#[test]
fn what_is_not_there_is_refused_as_memcached_refuses_what_is_off() {
    let mut server = Server::ready();
    server.says(&[
        ("version\r\n", "VERSION 1.6.45\r\n"),
        ("watch nosuch\r\n", "ERROR\r\n"),
        ("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n"),
        ("slabs reassign 1 2\r\n", "NOSPARE source class has no spare pages\r\n"),
        ("slabs\r\n", "ERROR\r\n"),
        ("lru\r\n", "ERROR\r\n"),
        ("lru_crawler enable\r\n", "ERROR failed to start lru crawler thread\r\n"),
        ("lru_crawler sleep 1000001\r\n", "CLIENT_ERROR sleep must be one second or less\r\n"),
        ("extstore item_age x\r\n", "ERROR\r\n"),
        ("extstore item_age 1\r\n", "OK\r\n"),
        ("verbosity\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ]);
}

#[test]
fn the_limit_of_memory_is_changed_within_bounds() {
    let mut server = Server::ready();
    let too_small = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
    let out_of_bounds = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    server.says(&[
        ("cache_memlimit\r\n", "ERROR\r\n"),
        ("cache_memlimit x\r\n", "ERROR\r\n"),
        ("cache_memlimit -1\r\n", "ERROR\r\n"),
        ("cache_memlimit 4294967296\r\n", "ERROR\r\n"),
        ("cache_memlimit noreply\r\n", ""),
        ("cache_memlimit 0\r\n", too_small),
        ("cache_memlimit 7\r\n", too_small),
        (
            "cache_memlimit 1000000001\r\n",
            "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        ),
    ]);
    assert_eq!(server.turn.executor.store.memory_bytes(), 64 << 20);
    for (request, reply, megabytes) in [
        ("cache_memlimit 128\r\n", "OK\r\n", 128),
        ("cache_memlimit 8 5\r\n", "OK\r\n", 8),
        ("cache_memlimit  000032 \r\n", "OK\r\n", 32),
        ("cache_memlimit 64 noreply\r\n", "", 64),
        ("cache_memlimit 1024\r\n", "OK\r\n", 1024),
        // memcached has no upper bound; it gives this reply if it cannot adjust the limit.
        ("cache_memlimit 1025\r\n", out_of_bounds, 1024),
    ] {
        server.says(&[(request, reply)]);
        assert_eq!(server.turn.executor.store.memory_bytes(), megabytes << 20, "{request:?}");
        let limit = format!("STAT limit_maxbytes {}\r\n", megabytes << 20);
        let stats = String::from_utf8(server.reply(b"stats\r\n")).unwrap();
        assert!(stats.contains(&limit), "{stats}");
        let maximum = format!("STAT maxbytes {}\r\n", megabytes << 20);
        let stats = String::from_utf8(server.reply(b"stats settings\r\n")).unwrap();
        assert!(stats.contains(&maximum), "{stats}");
    }
}

#[test]
fn a_large_value_comes_by_draft_and_goes_by_pin() {
    let mut server = Server::ready();
    let value = vec![b'v'; 300_000];
    let header = b"ms big 300000 k s\r\n";
    assert!(header.len() < LINE_BYTES_MAX);
    let Step::Body { request, value_bytes, .. } = server.session.next(header) else {
        panic!("a storage command without its value");
    };
    assert_eq!(begin(&mut server.turn.executor, &request, value_bytes), Ok(()));
    let mut draft = server.turn.executor.store.draft(value_bytes);
    let mut rest = &value[..];
    while !rest.is_empty() {
        let space = draft.space(&mut server.turn.executor.store).unwrap();
        let filled = space.len().min(rest.len()).min(1000);
        space[..filled].copy_from_slice(&rest[..filled]);
        draft.filled(filled);
        rest = &rest[filled..];
    }
    let mut out = Out::default();
    execute_with_draft(&mut server.turn.executor, (header, b"\r\n"), &mut draft, &mut out);
    assert_eq!(bytes(&out), b"HD kbig s300000\r\n");
    let expected = [b"VALUE big 0 300000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    assert!(server.reply(b"get big\r\n") == expected);

    // A value that is longer than declared is refused, and the old value stays.
    let mut draft = server.turn.executor.store.draft(0);
    let mut out = Out::default();
    let header = b"set big 0 0 200000\r\n";
    execute_with_draft(&mut server.turn.executor, (header, b"??"), &mut draft, &mut out);
    assert_eq!(bytes(&out), b"CLIENT_ERROR bad data chunk\r\n");
    assert!(server.reply(b"get big\r\n") == expected);

    // A value over `-I` is refused before it arrives, and the old value is deleted.
    let Step::Body { request, value_bytes, .. } = server.session.next(b"set big 0 0 2000000\r\n")
    else {
        panic!("a storage command without its value");
    };
    let refused = begin(&mut server.turn.executor, &request, value_bytes);
    let mut too_large = Vec::new();
    refused.unwrap_err().write(&mut too_large);
    assert_eq!(too_large, b"SERVER_ERROR object too large for cache\r\n");
    server.says(&[("get big\r\n", "END\r\n")]);
    assert_eq!(server.turn.executor.counters.store_too_large.get(), 1);
    assert_eq!(server.turn.executor.counters.set_cmds.get(), 2);
}

#[test]
fn a_turn_ends_with_statistics_as_with_as_many_requests_as_they_cost() {
    let mut server = Server::ready();
    for (request, requests, executed) in [
        ("get absent\r\n", 20, 20),
        ("stats\r\n", 20, 1),
        ("stats memory\r\n", 20, 1),
        ("stats\r\n", 100, 2),
    ] {
        let input = request.repeat(40);
        let mut budget = Budget::new(requests, OUT_BYTES_MAX);
        let Server { turn, session } = &mut server;
        let (stopped, at) = input::run(turn, session, (input.as_bytes(), 0), &mut budget);
        turn.out.clear();
        assert_eq!(stopped, StopReason::Enough, "{request}");
        assert_eq!(at / request.len(), executed, "{request}");
    }
}

/// Inputs of a batch, each with its own budget of requests and its own record of replies.
struct Several<'i> {
    inputs: Vec<(&'i str, Session, u32)>,
    next: usize,
    from: usize,
    ended: Vec<(usize, StopReason, usize, String)>,
}

impl<'i> Inputs<'i, Context> for Several<'i> {
    fn next(&mut self) -> Option<Input<'i>> {
        let (bytes, session, _) = self.inputs.get(self.next)?;
        let (number, bytes, session) = (self.next, bytes.as_bytes(), session.clone());
        self.next += 1;
        Some(Input { number, bytes, at: 0, session })
    }

    fn begin(&mut self, number: usize, turn: &mut TurnState<Context>) -> Budget {
        self.from = turn.out.buf.len();
        Budget::new(self.inputs[number].2, OUT_BYTES_MAX)
    }

    fn end(&mut self, number: usize, end: End<'_>, turn: &mut TurnState<Context>) {
        let reply = String::from_utf8(turn.out.buf[self.from..].to_vec()).unwrap();
        self.inputs[number].1 = end.session.clone();
        self.ended.push((number, end.stopped, end.at, reply));
    }
}

#[test]
fn a_batch_executes_each_input_as_if_it_were_alone() {
    let mut server = Server::ready();
    server.says(&[("set k 0 0 1\r\nv\r\n", "STORED\r\n")]);
    let many = "get k\r\n".repeat(40);
    let keys = format!("get {}\r\n", "k ".repeat(20));
    let texts: [(&str, u32); 9] = [
        ("get k\r\n", 9),
        ("get k\r\nset k 0 0 1\r\nw\r\nget k\r\nge", 9),
        (&many, 100),
        ("", 9),
        (&many, 17),
        ("quit\r\nget k\r\n", 9),
        ("set long 0 0 100000\r\nv", 9),
        (&keys, 9),
        ("mg k v\r\nmg k v\r\nget k", 1),
    ];
    let session = || Session::new(ProtocolMode::Ascii);
    // Executes each input alone, before the batch executes the same requests.
    let mut alone = Vec::new();
    for (number, (text, requests)) in texts.iter().enumerate() {
        let (mut own, mut budget) = (session(), Budget::new(*requests, OUT_BYTES_MAX));
        let input = (text.as_bytes(), 0);
        let (stopped, at) = input::run(&mut server.turn, &mut own, input, &mut budget);
        let reply = String::from_utf8(std::mem::take(&mut server.turn.out.buf)).unwrap();
        // The position does not matter when the connection closes.
        let at = if stopped == StopReason::Close { 0 } else { at };
        alone.push((number, stopped, at, reply));
    }
    server.says(&[("set k 0 0 1\r\nv\r\n", "STORED\r\n")]);
    let inputs = texts.map(|(text, requests)| (text, session(), requests)).to_vec();
    let mut several = Several { inputs, next: 0, from: 0, ended: Vec::new() };
    batch::run(&mut server.turn, &mut several);
    for ended in &mut several.ended {
        ended.2 = if ended.1 == StopReason::Close { 0 } else { ended.2 };
    }
    assert_eq!(several.ended, alone);
    let stopped: Vec<StopReason> = alone.iter().map(|alone| alone.1).collect();
    use StopReason::{Body, Close, Enough, Hungry};
    let expected = [Hungry, Hungry, Hungry, Hungry, Enough, Close, Body, Hungry, Enough];
    assert_eq!(stopped, expected);
    assert_eq!(alone[4].2, 17 * "get k\r\n".len(), "as many as the budget has");
    // After the batch each parser continues where its input stopped, with the next request.
    let (text, own, _) = &mut several.inputs[8];
    let rest = &text.as_bytes()[alone[8].2..];
    assert!(matches!(own.next(rest), Step::Request(..)), "{rest:?}");
}
