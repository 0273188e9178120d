//! Tests of runs against a server on another host, with sockets and with kernel bypass (AF_XDP).
//!
//! Where: tests of the whole program. Both hosts are network namespaces of this machine.
//! Invariant: no asserted figure depends on the machine's speed.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod programs;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{ToSocketAddrs, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use programs::{as_root, hypostyle_program, memcached_program};
use serde_json::Value;
use testing::namespace::{Namespace, Veth, WIRE, pair};
use testing::{KillOnDrop, skip};

/// A test fails if a server does not answer within this time.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUESTS: u64 = 4000;

fn kvblaster(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvblaster"));
    command.args(words.split_whitespace());
    command
}

fn serve(machine: &Namespace, place: &str) -> KillOnDrop {
    let mut command = kvblaster(&format!("reflect {place}"));
    let mut server = machine.on(|| KillOnDrop::spawn(command.stdout(Stdio::piped())));
    // The server prints its address when it can answer.
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("answering on "), "{line}");
    server
}

/// Starts a cache with two threads that answers UDP. `None` if the program is not installed. With
/// `--xdp`, `words` must turn work stealing off: a thread that stole a request would send the reply
/// through another queue, so that a wrong client thread could get the reply.
fn start(machine: &Namespace, program: &OsStr, words: &[&str]) -> Option<KillOnDrop> {
    let every = ["-p", "11211", "-U", "11211", "-t", "2"];
    let mut command = Command::new(program);
    command.args(every).args(as_root()).args(words).stdout(Stdio::null()).stderr(Stdio::null());
    let server = match machine.on(|| command.spawn()) {
        Ok(child) => KillOnDrop(child),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip(&format!("{} is not installed (make peers)", program.display()));
            return None;
        }
        Err(error) => panic!("{}: {error}", program.display()),
    };
    let until = Instant::now() + PATIENCE;
    while !machine.on(|| answers((machine.v4, 11211)) && answers((machine.v6, 11211))) {
        assert!(Instant::now() < until, "{} does not answer", program.display());
    }
    Some(server)
}

fn answers(at: impl ToSocketAddrs) -> bool {
    let at = at.to_socket_addrs().unwrap().next().unwrap();
    let socket = UdpSocket::bind((at.ip(), 0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let question = b"\0\0\0\0\0\x01\0\0version\r\n";
    socket.send(question).and_then(|_| socket.recv(&mut [0; 100])).is_ok()
}

fn driven(machine: &Namespace, words: &str) -> Result<String, String> {
    let run = format!(
        "run -q -w mix-a --keys 1000 -n {REQUESTS} --schedule 1h+1x1h --timeout 60s {words}"
    );
    let output = machine.on(|| kvblaster(&run).output().unwrap());
    let [out, err] = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    if output.status.success() { Ok(out) } else { Err(err + &out) }
}

fn ran(machine: &Namespace, target: &str) -> String {
    driven(machine, &format!("-c 1 -d 8 {target}")).unwrap()
}

/// Asserts that every get was a hit, and that every reply reached its connection.
fn assert_whole(machine: &Namespace, words: &str) {
    let told = driven(machine, &format!("--json {words}")).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    let tally = &told["merged"]["tally"];
    let (get, udp) = (&tally["verbs"]["get"], &tally["udp"]);
    let counts = [&get["answered"], &get["hits"], &get["timeouts"], &tally["broken"]];
    let counts = counts.map(|count| count.as_u64().unwrap());
    assert_eq!(counts, [REQUESTS, REQUESTS, 0, 0], "{words}: {tally}");
    for count in ["lost", "duplicate"] {
        assert_eq!(udp[count], 0, "{words}: {count}");
    }
}

#[test]
fn what_a_server_in_another_network_namespace_takes_is_told() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    // kvblaster finds the server's process by its port. Servers of other tests have the same
    // address in other network namespaces, but other ports.
    let _server = serve(&far, "udp://0.0.0.0:11300");
    let told = ran(&near, &format!("udp://{}:11300", far.v4));
    assert!(told.contains("; kvblaster, pid "), "{told}");
    assert!(told.contains("0 timeouts"), "{told}");
}

#[test]
fn a_null_server_past_the_kernel_is_driven_past_the_kernel_and_by_sockets() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let at = format!("{}:11211", far.v4);
    let _server = serve(&far, &format!("xdp://{WIRE}/{at}"));
    for target in [format!("xdp://{WIRE}/{at}"), format!("udp://{at}")] {
        let told = ran(&near, &target);
        assert!(told.contains("0 timeouts"), "{told}");
    }
}

#[test]
fn more_connections_than_queues_are_told_apart_by_their_ports() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let at = format!("{}:11211", far.v4);
    for server in [format!("udp://{at}"), format!("xdp://{WIRE}/{at}")] {
        let _server = serve(&far, &server);
        for words in
            ["-c 64", "-c 64 --receive-cpus 0", "-c 3 -d 100", "-c 8 --churn 100", "-c 9 --spin"]
        {
            assert_whole(&near, &format!("{words} xdp://{WIRE}/{at}"));
        }
    }
}

#[test]
fn answers_come_to_the_thread_that_asked_whatever_queue_the_server_sends_them_by() {
    let Some([near, far]) = pair(Veth { queues: 4, mtu: 1500 }) else { return };
    let hypostyle = hypostyle_program();
    let everybody = "udp_allow=0.0.0.0/0,udp_allow=::/0";
    let servers: [(&OsStr, &[&str]); 4] = [
        (hypostyle.as_os_str(), &["-o", everybody]),
        (hypostyle.as_os_str(), &["-o", everybody, "-o", "no_steal", "--xdp", WIRE]),
        (hypostyle.as_os_str(), &["-o", everybody, "-o", "no_steal", "--xdp", "wire:1-2"]),
        (&memcached_program(), &[]),
    ];
    for (program, words) in servers {
        let Some(_server) = start(&far, program, words) else { continue };
        for (threads, protocol) in [(1, "text"), (2, "binary"), (3, "meta"), (4, "text")] {
            let host = if threads % 2 == 0 { format!("[{}]", far.v6) } else { far.v4.to_string() };
            let how = format!("-t {threads} -c 16 -P {protocol}");
            assert_whole(&near, &format!("{how} xdp://{WIRE}/{host}:11211"));
        }
    }
}

/// The file with the set of CPUs that send through a queue (transmit packet steering, XPS).
fn xps(queue: u32) -> String {
    format!("/sys/class/net/{WIRE}/queues/tx-{queue}/xps_cpus")
}

#[test]
fn a_server_whose_answers_come_by_one_queue_alone_is_told_with_the_queue() {
    let Some([near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let at = format!("{}:11211", far.v4);
    let server = serve(&far, &format!("udp://{at}"));
    // Makes all CPUs send through the second queue.
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last: usize = possible.trim().rsplit(['-', ',']).next().unwrap().parse().unwrap();
    let words = (0..=last / 32).rev().map(|word| match last - word * 32 {
        31.. => "ffffffff".to_owned(),
        bit => format!("{:x}", (1_u64 << (bit + 1)) - 1),
    });
    let all = words.collect::<Vec<String>>().join(",");
    far.on(|| std::fs::write(xps(1), &all)).unwrap();
    assert_whole(&near, &format!("-t 1 -c 4 xdp://{WIRE}/{at}"));
    let told = driven(&near, &format!("-t 2 -c 4 xdp://{WIRE}/{at}")).unwrap_err();
    assert!(told.contains("thread 0 needs 3 UDP ports"), "{told}");
    assert!(told.contains(" arrived in queue 0 for 0 ports, "), "{told}");
    assert!(told.contains("kvblaster sent requests from "), "{told}");
    let told = driven(&near, &format!("-t 3 -c 4 xdp://{WIRE}/{at}")).unwrap_err();
    assert!(told.contains("wire has only 2 queues: use at most 2 threads (-t)"), "{told}");
    drop(server);
    let _silent = far.on(|| UdpSocket::bind((far.v4, 11211)).unwrap());
    let told = driven(&near, &format!("-t 2 -c 4 xdp://{WIRE}/{at}")).unwrap_err();
    assert!(told.contains("does not answer"), "{told}");
}

#[test]
fn packets_are_taken_where_the_mode_says() {
    let Some([near, far]) = pair(Veth { queues: 2, mtu: 1500 }) else { return };
    let at = format!("{}:11211", far.v4);
    for mode in ["native", "generic"] {
        let _server = serve(&far, &format!("xdp://{WIRE}/{at}?mode={mode}"));
        let shown = far.ip("-details link show wire");
        assert_eq!(shown.contains("xdpgeneric"), mode == "generic", "{shown}");
        for client in ["native", "generic"] {
            // In generic mode, the packets of both queues of a veth interface arrive in one queue.
            let threads = if (mode, client) == ("native", "native") { 2 } else { 1 };
            assert_whole(&near, &format!("-t {threads} -c 6 xdp://{WIRE}/{at}?mode={client}"));
        }
    }
}
