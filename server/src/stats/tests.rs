//! Tests of `stats`: its names, their order, the numbers, and `stats reset`.

use std::sync::Arc;

use protocol::{Args, Form, LineTokens, Stats};
use store::policy::Eviction;

use super::rows::{Rows, Target};
use super::{Pending, obey, pending};
use crate::clock::START;
use crate::shared::Shared;
use crate::start::settings::Settings;

fn shared(settings: Settings) -> Arc<Shared> {
    let store = store::Store::new(&settings.store_config()).unwrap();
    Shared::new(Arc::new(settings), store, 1_000_000)
}

fn answer(shared: &Shared, arguments: &str) -> String {
    let (mut out, form) = (Vec::new(), Form::LINE);
    let args = Args::Line(LineTokens::of(arguments.as_bytes()));
    let request = Stats { args, lists: true, form };
    let now = START + 10;
    match pending(shared, &request) {
        Pending::Rows(write) => form.stats(&mut out, |out| {
            write(shared, &mut Rows { now, target: Target::Reply(form, out) });
        }),
        Pending::Reply(outcome) => form.write_outcome(outcome, &mut out),
        Pending::Order(order) => form.write_outcome(obey(shared, order), &mut out),
        _ => panic!("{arguments} takes several turns"),
    }
    String::from_utf8(out).unwrap()
}

fn value<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer
        .split("\r\n")
        .find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '))
}

#[test]
fn general_lines_are_well_formed_and_end() {
    let shared = shared(Settings::with_columns(2));
    let text = answer(&shared, "");
    let body = text.strip_suffix("END\r\n").unwrap();
    for line in body.split_terminator("\r\n") {
        let fields: Vec<&str> = line.split(' ').collect();
        assert!(
            matches!(fields[..], ["STAT", name, value] if !name.is_empty() && !value.is_empty())
        );
    }
    assert_eq!(value(&text, "pid"), Some(&*std::process::id().to_string()));
    assert_eq!(value(&text, "uptime"), Some("12"));
    assert_eq!(value(&text, "time"), Some("1000072"));
    assert_eq!(value(&text, "version"), Some("1.6.45"));
    let store = answer(&shared, "store");
    assert_eq!(value(&store, "hypostyle_version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(value(&text, "pointer_size"), Some("64"));
    assert_eq!(value(&text, "threads"), Some("2"));
    assert_eq!(value(&text, "limit_maxbytes"), Some("67108864"));
    assert_eq!(value(&text, "accepting_conns"), Some("1"));
}

#[test]
fn counters_of_all_columns_are_summed_and_reset_together() {
    let shared = shared(Settings::with_columns(2));
    shared.requests[0].get_hits.add(3);
    shared.requests[1].get_hits.add(4);
    shared.columns.counters[1].total_connections.add(1);
    shared.columns.connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(value(&answer(&shared, ""), "cmd_get"), Some("7"));
    assert_eq!(answer(&shared, "reset"), "RESET\r\n");
    let text = answer(&shared, "");
    assert_eq!(value(&text, "cmd_get"), Some("0"));
    assert_eq!(value(&text, "total_connections"), Some("0"));
    assert_eq!(value(&text, "curr_connections"), Some("1"));
    shared.requests[0].get_hits.add(1);
    assert_eq!(value(&answer(&shared, ""), "cmd_get"), Some("1"));
}

#[test]
fn rejected_connections_only_where_connections_are_rejected() {
    let mut settings = Settings::default();
    settings.columns.connections_max_fast = false;
    let shared = shared(settings);
    assert_eq!(value(&answer(&shared, ""), "rejected_connections"), None);
}

#[test]
fn what_room_is_made_of_is_told() {
    let shared = shared(Settings { memory_bytes: 2 << 20, ..Settings::default() });
    let mut column = shared.store.column();
    let mut set = |key: u32, bytes: u32| {
        column.set_now(START + key / 1000);
        let key = key.to_le_bytes();
        let value = vec![1; usize::try_from(bytes).unwrap()];
        let put = store::Put::new(store::Verb::Set, &key);
        column.put(&put, store::Body::Bytes(&value)).unwrap();
        column.quiesce();
    };
    // Sets the same keys with other lengths, so that segments are compacted but no item is evicted.
    let any = |at: u32| (at.wrapping_mul(2_654_435_761) >> 16) % 9_000;
    (0..80_000).for_each(|at| set(any(at), 100 + at % 90));
    let number = |name: &str| {
        let text = answer(&shared, "") + &answer(&shared, "store");
        value(&text, name).unwrap_or_else(|| panic!("no {name}")).parse::<u64>().unwrap()
    };
    assert!(number("compacted_bytes") > 1000 && number("compacted_segments") > 10);
    assert!(number("dead_bytes") > 1000 && number("bytes") > 8_000 * 100);
    assert_eq!((number("evictions"), number("drained_segments")), (0, 0));
    // Sets more items than fit, and some twice, so that items that were never read are evicted.
    (10_000..40_000).for_each(|key| set(key, 100));
    (30_000..33_000).for_each(|key| set(key, 100));
    assert!(number("evictions") > 10_000 && number("drained_segments") > 100);
    assert_eq!(number("evicted_unfetched"), number("evictions"));
    assert!(number("eviction_age") > 0 && number("ghost_hits") > 0);
    let live = answer(&shared, "memory");
    assert_eq!(value(&live, "live_bytes"), Some(&*number("bytes").to_string()));
}

#[test]
fn every_byte_of_memory_is_in_one_line_and_the_sum_of_them_is_told() {
    let shared = shared(Settings::with_columns(2));
    let mut column = shared.store.column();
    for key in 0..1000_u32 {
        let key = key.to_le_bytes();
        let put = store::Put::new(store::Verb::Set, &key);
        column.put(&put, store::Body::Bytes(&[1; 5000])).unwrap();
    }
    shared.columns.counters[1].read_buf_bytes.set(1_000_000);
    shared.prefixes.count(b"prefix:key", |counts| counts.asked.gets += 1);
    let text = answer(&shared, "memory");
    let number = |name: &str| value(&text, name).unwrap().parse::<u64>().unwrap();
    let parts = [
        "live_bytes",
        "dead_bytes",
        "tail_bytes",
        "frame_bytes",
        "frame_free_bytes",
        "free_bytes",
        "limbo_bytes",
        "index_bytes",
        "ghost_bytes",
        "table_bytes",
        "connection_bytes",
        "read_buf_bytes",
        "response_obj_bytes",
        "prefix_bytes",
        "heap_free_bytes",
        "program_bytes",
    ];
    assert_eq!(parts.map(number).iter().sum::<u64>(), number("accounted_bytes"), "{text}");
    assert!(number("live_bytes") > 5_000_000 && number("read_buf_bytes") == 1_000_000, "{text}");
    let states = ["open", "sealed", "frames", "free", "limbo", "index", "withheld"];
    let segments: u64 = states.iter().map(|state| number(&format!("segments_{state}"))).sum();
    assert_eq!((segments, number("segments_allowed")), (1024, 1024), "{text}");
    assert_eq!(number("segments_allowed") * number("segment_bytes"), number("limit_maxbytes"));
}

#[test]
fn the_most_that_the_limit_may_become_is_told() {
    let shared = shared(Settings::default());
    let told = answer(&shared, "store");
    let most: usize = value(&told, "limit_maxbytes_max").unwrap().parse().unwrap();
    let mut column = shared.store.column();
    assert_eq!(column.limit_memory(most + (1 << 20)), Err(store::OutOfBounds));
    assert_eq!(column.limit_memory(most), Ok(()));
    assert_eq!(column.limit_memory(*shared.store.limits().start() - 1), Err(store::OutOfBounds));
    assert_eq!(column.limit_memory(*shared.store.limits().start()), Ok(()));
}

#[test]
fn items_and_slabs_know_one_class() {
    let shared = shared(Settings::default());
    assert_eq!(answer(&shared, "items"), "END\r\n");
    let slabs = answer(&shared, "slabs");
    assert_eq!(value(&slabs, "active_slabs"), Some("0"));
    let mut column = shared.store.column();
    let put = store::Put::new(store::Verb::Set, b"key");
    column.put(&put, store::Body::Bytes(b"value")).unwrap();
    let (items, slabs) = (answer(&shared, "items"), answer(&shared, "slabs"));
    assert_eq!(value(&items, "items:1:number"), Some("1"));
    assert_eq!(value(&slabs, "1:used_chunks"), Some("1"));
    let number = |name: &str| value(&slabs, name).unwrap().parse::<u64>().unwrap();
    // Programs that read these numbers assume pages of one mebibyte.
    assert_eq!(number("1:total_pages"), number("total_malloced").div_ceil(1 << 20));
    assert_eq!(number("1:chunks_per_page"), (1 << 20) / number("1:chunk_size"));
    assert_eq!(number("1:free_chunks") + 1, number("1:total_chunks"));
    let chunks = number("1:chunks_per_page") * number("1:total_pages");
    assert!(chunks == number("1:total_chunks") && number("1:chunk_size") > 7);
    assert_eq!(value(&items, "items:1:age"), Some("10"));
    assert_eq!(value(&slabs, "active_slabs"), Some("1"));
    assert_eq!(answer(&shared, "sizes"), "STAT sizes_status disabled\r\nEND\r\n");
    assert_eq!(answer(&shared, "item"), "ERROR\r\n");
}

#[test]
fn mrc_says_what_other_sizes_would_do_once_there_were_lookups() {
    let shared = shared(Settings::default());
    assert_eq!(answer(&shared, "mrc"), "STAT mrc:sampled_one_in 64\r\nEND\r\n");
    let mut column = shared.store.column();
    for key in (0..100_000_u32).chain(0..100_000) {
        let key = key.to_le_bytes();
        if column.get(&key).is_none() {
            let put = store::Put::new(store::Verb::Set, &key);
            column.put(&put, store::Body::Bytes(b"value")).unwrap();
        }
    }
    // Half of the lookups missed, because their keys were not stored yet; the other half hit. About
    // 1,560 keys are sampled, different ones in each run, which gives a standard error of 0.013.
    let text = answer(&shared, "mrc");
    let ratio: f64 = value(&text, "mrc:67108864:miss_ratio").unwrap().parse().unwrap();
    assert!((ratio - 0.5).abs() < 0.08, "{text}");
}

#[test]
fn settings_say_what_was_set() {
    let eviction = Eviction::S3Fifo;
    let default = answer(&shared(Settings { eviction, ..Settings::default() }), "settings");
    for (name, expected) in [
        ("maxbytes", "67108864"),
        ("maxconns", "1024"),
        ("tcpport", "11211"),
        ("udpport", "0"),
        ("inter", "NULL"),
        ("evictions", "on"),
        ("eviction", "s3-fifo"),
        ("domain_socket", "NULL"),
        ("umask", "700"),
        ("cas_enabled", "yes"),
        ("binding_protocol", "auto-negotiate"),
        ("item_size_max", "1048576"),
        ("flush_enabled", "yes"),
    ] {
        assert_eq!(value(&default, name), Some(expected), "{name}");
    }
    let mut changed = Settings {
        cas: false,
        flush_enabled: false,
        unix_path: Some("/run/x".into()),
        unix_mask: 0o660,
        port: crate::start::settings::Port::Any,
        inter: Some("127.0.0.1,[::1]:5".to_owned()),
        ..Settings::default()
    };
    changed.columns.evict = false;
    let changed = shared(changed);
    changed.set_verbosity(2);
    let text = answer(&changed, "settings");
    for (name, expected) in [
        ("tcpport", "-1"),
        ("inter", "127.0.0.1,[::1]:5"),
        ("verbosity", "2"),
        ("evictions", "off"),
        ("eviction", "none"),
        ("domain_socket", "/run/x"),
        ("umask", "660"),
        ("cas_enabled", "no"),
        ("flush_enabled", "no"),
    ] {
        assert_eq!(value(&text, name), Some(expected), "{name}");
    }
    assert!(text.ends_with("\r\nEND\r\n"));
}

#[test]
fn subcommands_may_be_shortened_and_unknown_ones_are_errors() {
    let shared = shared(Settings::default());
    assert_eq!(answer(&shared, "r"), "RESET\r\n");
    assert_eq!(answer(&shared, "reset again"), "RESET\r\n");
    assert_eq!(answer(&shared, "set"), answer(&shared, "settings"));
    for unknown in ["resets", "nonsense", "connections", "size"] {
        assert_eq!(answer(&shared, unknown), "ERROR\r\n", "{unknown}");
    }
}

#[test]
fn detail_is_switched_and_told_in_the_settings() {
    let shared = shared(Settings { prefix_end: b'/', ..Settings::default() });
    let is_on = || value(&answer(&shared, "settings"), "detail_enabled") == Some("yes");
    assert_eq!(value(&answer(&shared, "settings"), "stat_key_prefix"), Some("/"));
    assert!(!is_on());
    assert_eq!(answer(&shared, "detail on"), "OK\r\n");
    assert!(is_on());
    assert_eq!(answer(&shared, "d of more"), "OK\r\n");
    assert!(!is_on());
    let usage = "CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    assert_eq!(answer(&shared, "detail"), usage);
    assert_eq!(answer(&shared, "detail ons"), usage);
}

#[test]
fn the_index_is_said_to_expand_while_it_has_more_items_than_it_should() {
    let shared = shared(Settings::default());
    let mut column = shared.store.column();
    let mut told = [0; 2];
    for key in 0..100_000_u32 {
        let key = key.to_le_bytes();
        let put = store::Put::new(store::Verb::Set, &key);
        column.put(&put, store::Body::Bytes(b"value")).unwrap();
        told[usize::from(shared.store.index_is_expanding())] += 1;
        column.quiesce();
    }
    assert!(told[0] > 0 && told[1] > 0, "{told:?}");
}

#[test]
fn dumps_are_forbidden_by_their_flag() {
    let shared = shared(Settings { dump_enabled: false, ..Settings::default() });
    assert_eq!(answer(&shared, "detail on"), "CLIENT_ERROR stats detail not allowed\r\n");
    assert_eq!(answer(&shared, "cachedump 1 1"), "CLIENT_ERROR stats cachedump not allowed\r\n");
}

#[test]
fn an_audit_is_for_debug_builds_and_finds_nothing() {
    let shared = shared(Settings::with_columns(2));
    let mut column = shared.store.column();
    let put = store::Put::new(store::Verb::Set, b"key");
    column.put(&put, store::Body::Bytes(&[b'v'; 100_000])).unwrap();
    let sound = if cfg!(debug_assertions) { "STAT audit ok\r\nEND\r\n" } else { "ERROR\r\n" };
    assert_eq!(answer(&shared, "audit"), sound);
    let hit = column.get(b"key").unwrap();
    if cfg!(debug_assertions) {
        let told = answer(&shared, "audit");
        assert!(told.starts_with("STAT audit_fault frame "), "held for a reader: {told}");
    }
    drop(hit);
    assert_eq!(answer(&shared, "audit"), sound);
}
