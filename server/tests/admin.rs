//! The listener for operators: its answers to a monitoring program, to a browser and to hostile
//! peers.
//!
//! Where: an in-process server with `--admin`, asked over HTTP.
//! Invariant: every answer is complete and valid in its format.
//! Source: the Prometheus text format 0.0.4, OpenMetrics 1.0, RFC 9112.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use hypostyle::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_REQUEST_BYTES_MAX};
use hypostyle::run::Server;
use hypostyle::start::settings::Settings;
use inprocess::{Client, connect, settings, start};
use serde_json::Value;
use testing::{piped, wait_until};

fn with_admin(columns: usize) -> Settings {
    Settings { admin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), ..settings(columns) }
}

/// Sends bytes to the listener. Returns the head and the body of the answer.
fn talk(server: &Server, request: &str) -> (String, String) {
    let mut client = Client::to(server.admin_address().unwrap());
    client.try_send(request);
    let answer = String::from_utf8(client.rest()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_owned(), body.to_owned())
}

fn get(server: &Server, path: &str, more: &str) -> String {
    let (head, body) =
        talk(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
    body
}

/// Returns the value of each sample, by its name with its labels.
fn samples(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(n, v)| (n, v.parse().unwrap())).collect()
}

/// A server that has executed a few requests.
fn asked() -> Server {
    let server = start(with_admin(2));
    let mut client = connect(&server);
    client.ask("set k 0 0 5\r\nvalue\r\n", "STORED\r\n");
    client.ask("get k\r\n", "VALUE k 0 5\r\nvalue\r\nEND\r\n");
    client.ask("get nosuch\r\n", "END\r\n");
    server
}

#[test]
fn promtool_finds_no_fault_in_the_metrics() {
    let server = asked();
    let page = get(&server, "/metrics", "");
    let Some(output) = piped(&["promtool", "check", "metrics"], &page) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    server.stop();
}

#[test]
fn metrics_count_what_stats_counts() {
    let server = asked();
    let page = get(&server, "/metrics", "");
    let all = samples(&page);
    assert_eq!(all["hypostyle_get_hits_total"], 1.0);
    assert_eq!(all["hypostyle_get_misses_total"], 1.0);
    assert_eq!(all["hypostyle_set_cmds_total"], 1.0);
    assert_eq!(all["hypostyle_curr_items"], 1.0);
    assert_eq!(all["hypostyle_threads"], 2.0);
    assert_eq!(all["hypostyle_limit_bytes"], f64::from(64 << 20));
    let of_columns = |name: &str| -> f64 {
        (0..2).map(|column| all[format!("{name}{{column=\"{column}\"}}").as_str()]).sum()
    };
    assert_eq!(of_columns("hypostyle_column_requests_total"), 3.0);
    assert_eq!(of_columns("hypostyle_accepted_connections_total"), 1.0);
    assert_eq!(of_columns("hypostyle_listen_disabled_seconds_total"), 0.0);
    connect(&server).ask("stats reset\r\n", "RESET\r\n");
    let later = get(&server, "/metrics", "");
    assert_eq!(samples(&later)["hypostyle_get_hits_total"], 1.0, "a counter never falls");
    server.stop();
}

/// The document, alerts and dashboard that name metrics.
const NAMING: [(&str, &str); 3] = [
    ("docs/metrics.md", include_str!("../../docs/metrics.md")),
    ("contrib/prometheus/alerts.yml", include_str!("../../contrib/prometheus/alerts.yml")),
    ("contrib/grafana/hypostyle.json", include_str!("../../contrib/grafana/hypostyle.json")),
];

#[test]
fn every_metric_that_the_tree_names_exists() {
    let server = asked();
    let mut client = connect(&server);
    let (mut page, mut number) = (String::new(), 0);
    wait_until("a key is sampled for the estimate of miss ratios", || {
        number += 1;
        client.ask(format!("get key{number}\r\n"), "END\r\n");
        page = get(&server, "/metrics", "");
        page.contains("estimated_miss_ratio")
    });
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let begins = |line: &str, name: &str| {
        line.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_of_name))
    };
    for (file, text) in NAMING {
        let names: BTreeSet<&str> = text
            .match_indices("hypostyle_")
            .map(|(at, _)| text[at..].split(|one| !is_of_name(one)).next().unwrap())
            .filter(|name| *name != "hypostyle_")
            .collect();
        assert!(names.len() > 10, "{file}");
        for name in names {
            let is_family = page.contains(&format!("# TYPE {name} "));
            assert!(is_family || page.lines().any(|line| begins(line, name)), "{file}: {name}");
        }
    }
    server.stop();
}

#[test]
fn promtool_finds_no_fault_in_the_alerts_and_their_tests_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/prometheus");
    for (what, file) in [("check", "alerts.yml"), ("test", "alerts.test.yml")] {
        let file = format!("{folder}/{file}");
        let Some(output) = piped(&["promtool", what, "rules", &file], "") else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_dashboard_is_one_json_object() {
    let (_, text) = NAMING[2];
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids: Vec<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
    assert!(panels.iter().all(|panel| !panel["targets"].as_array().unwrap().is_empty()));
}

#[test]
fn the_buckets_of_a_histogram_are_cumulative() {
    let server = start(with_admin(1));
    let mut client = connect(&server);
    let of_gets = |page: &str, part: &str| -> Vec<f64> {
        let begin = format!("hypostyle_request_duration_seconds_{part}{{kind=\"get\"");
        let lines = page.lines().filter(|line| line.starts_with(&begin));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
    };
    let mut page = String::new();
    wait_until("a loop is sampled", || {
        client.ask("get nosuch\r\n", "END\r\n");
        page = get(&server, "/metrics", "");
        of_gets(&page, "count") > [0.0].to_vec()
    });
    let (buckets, count) = (of_gets(&page, "bucket"), of_gets(&page, "count"));
    assert!(buckets.is_sorted(), "{buckets:?}");
    assert_eq!(buckets.last(), count.first(), "all are in the bucket +Inf");
    assert!(of_gets(&page, "sum")[0] > 0.0);
    server.stop();
}

#[test]
fn both_formats_have_the_same_families_each_with_its_head_first() {
    let server = asked();
    let prometheus = get(&server, "/metrics", "");
    let accept = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    let open = get(&server, "/metrics", accept);
    assert!(open.ends_with("\n# EOF\n"));
    let families = |page: &str, kind: &str| -> BTreeSet<String> {
        let heads = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        heads
            .filter_map(|line| line.strip_suffix(kind))
            .map(|name| name.trim().to_owned())
            .collect()
    };
    let counters = families(&open, "counter");
    assert!(counters.len() > 40);
    let with_total: BTreeSet<String> =
        counters.iter().map(|name| format!("{name}_total")).collect();
    assert_eq!(with_total, families(&prometheus, "counter"));
    assert_eq!(families(&open, "gauge"), families(&prometheus, "gauge"));
    assert_eq!(
        samples(&open).keys().collect::<Vec<_>>(),
        samples(&prometheus).keys().collect::<Vec<_>>()
    );
    for page in [&prometheus, &open] {
        let mut family = "";
        for line in page.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(head) => family = head.split(' ').next().unwrap(),
                None => assert!(line.starts_with('#') || line.starts_with(family), "{line}"),
            }
        }
    }
    server.stop();
}

#[test]
fn the_statistics_are_one_json_object() {
    let server = asked();
    let all: Value = serde_json::from_str(&get(&server, "/stats.json", "")).unwrap();
    assert_eq!(all["general"]["get_hits"], 1);
    assert_eq!(all["general"]["version"], "1.6.45");
    assert_eq!(all["settings"]["cas_enabled"], "yes");
    assert_eq!(all["items"]["items:1:number"], 1);
    assert_eq!(all["columns"]["columns:0:cpu"], -1);
    assert!(all["memory"]["live_bytes"].as_u64().unwrap() > 0);
    assert!(all["hot"]["requests"].is_u64());
    for name in ["store", "latency", "mrc", "slabs", "udp"] {
        assert!(all[name].is_object(), "{name}");
    }
    assert!(all.get("audit").is_none() && all.get("steps").is_none());
    server.stop();

    let server = start(Settings { dump_enabled: false, ..with_admin(1) });
    let all: Value = serde_json::from_str(&get(&server, "/stats.json", "")).unwrap();
    assert!(all.get("hot").is_none(), "-X hides keys");
    server.stop();
}

#[test]
fn keys_of_any_bytes_leave_the_object_whole() {
    let server = start(with_admin(1));
    let mut client = connect(&server);
    let key = "\"<script>\\\u{7f}\u{202e}\u{1}";
    let mut text = String::new();
    wait_until("the key is among the hot keys", || {
        client.ask(format!("get {key}\r\n"), "END\r\n");
        text = get(&server, "/stats.json", "");
        text.contains("script")
    });
    let all: Value = serde_json::from_str(&text).unwrap();
    assert!(all["hot"].as_object().unwrap().keys().any(|row| row.contains("script")), "{text}");
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
    server.stop();
}

#[test]
fn health_is_told() {
    let server = start(with_admin(1));
    assert_eq!(get(&server, "/healthz", ""), "ok\n");
    assert_eq!(get(&server, "/readyz", ""), "ok\n");
    server.stop();
}

#[test]
fn only_what_reads_this_machine_by_its_own_name_is_answered() {
    let server = start(with_admin(1));
    let status = |request: &str| {
        let (head, _) = talk(&server, request);
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), "421");
    assert_eq!(status("GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n"), "200");
    assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), "200");
    assert_eq!(status("GET /nosuch HTTP/1.1\r\nHost: [::1]\r\n\r\n"), "404");
    assert_eq!(status("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), "405");
    assert_eq!(status("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), "200");
    assert_eq!(status("flush_all\r\n\r\n"), "400");
    server.stop();
}

#[test]
fn hostile_peers_cost_no_more_than_their_places() {
    let server = start(with_admin(1));
    let address = server.admin_address().unwrap();
    // A request without an end is refused when it is longer than the limit.
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}", "a".repeat(1 << 20));
    let (head, _) = talk(&server, &long);
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 431"), "{head}");
    assert!(long.len() > ADMIN_REQUEST_BYTES_MAX);

    // Peers that say nothing hold all places, until the time of each is over.
    let silent: Vec<Client> = (0..2 * ADMIN_CONNECTIONS_MAX).map(|_| Client::to(address)).collect();
    assert_eq!(get(&server, "/healthz", ""), "ok\n");
    for mut peer in silent {
        assert!(peer.rest().is_empty(), "disconnected without an answer");
    }
    // The cache has answered all the time.
    connect(&server).ask("get k\r\n", "END\r\n");
    server.stop();
}

#[test]
fn the_listener_closes_with_the_server() {
    let server = start(with_admin(1));
    let address = server.admin_address().unwrap();
    let held = Client::to(address);
    server.stop();
    assert!(std::net::TcpStream::connect(address).is_err());
    drop(held);
}
