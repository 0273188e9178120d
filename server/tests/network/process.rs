//! A server process with UDP over AF_XDP is killed or stopped, runs as nobody, or loses its link.
//!
//! Where: the built program on one end of a link, clients with kernel sockets on the other.
//! Invariant: after any such event, later requests are answered over AF_XDP, or through the
//! kernel's sockets if the interface is gone. The log reports which of the two ways is in use.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{Network, Veth, Way, datagrams, hit};
use crate::inprocess::Client;
use crate::running::hypostyle;
use protocol::udp::Header;
use rustix::process::{Pid, Signal, kill_process};
use testing::namespace::{Namespace, WIRE, pair};
use testing::{KillOnDrop, wait_until};

const PORT: u16 = 11211;
/// An answer that comes after this time counts as missing.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

struct Process {
    child: KillOnDrop,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// Starts the program as `user`, with UDP over AF_XDP, and waits until the program serves.
    fn on(machine: &Namespace, user: &str) -> Process {
        Process::with(machine, &["-u", user], &[])
    }

    fn with(machine: &Namespace, words: &[&str], environment: &[(&str, &str)]) -> Process {
        let mut child = machine.on(|| {
            let mut command = hypostyle(&["-p", "11211", "-l", "0.0.0.0", "-U", "11211"]);
            command.args(["-o", "udp_allow=0.0.0.0/0,udp_allow=::/0", "--xdp", WIRE, "-t", "1"]);
            KillOnDrop::spawn(command.args(words).envs(environment.iter().copied()))
        });
        let log: Arc<Mutex<String>> = Arc::default();
        let (lines, writer) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        thread::spawn(move || {
            lines.lines().map_while(Result::ok).for_each(|line| *writer.lock().unwrap() += &line);
        });
        let mut process = Process { child, log };
        wait_until("the server serves", || {
            let ended = process.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", process.log());
            process.log().contains("UDP on wire bypasses the kernel")
                && machine.on(|| is_answered((machine.v4, PORT).into()).is_ok())
        });
        process
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn await_word(&self, word: &str) {
        wait_until(word, || self.log().contains(word));
    }

    fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
        let tasks = procfs::process::Process::new(self.child.id().try_into().unwrap()).unwrap();
        let is_stopped = |task: procfs::process::Task| task.stat().unwrap().state == 'T';
        let all_are = || tasks.tasks().unwrap().all(|task| is_stopped(task.unwrap()));
        wait_until("the stop of all threads", all_are);
    }

    fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }
}

/// Fails unless the server answers a request. (The kernel may accept a connection before the server
/// has changed its user and serves the connection.)
fn is_answered(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.write_all(b"mn\r\n")?;
    stream.read_exact(&mut [0; 4])
}

fn client(near: &Namespace, far: &Namespace) -> datagrams::Client {
    near.on(|| datagrams::Client::at(near.v4.into(), (far.v4, PORT).into()))
}

fn answers_past_the_kernel([near, far]: &[Namespace; 2]) {
    let before = far.counter("Udp", "InDatagrams");
    let mut client = client(near, far);
    client.ask("set k 0 0 1\r\n1\r\n", "STORED\r\n");
    (0..300).for_each(|_| client.ask("get k\r\n", hit("k", "1")));
    assert_eq!(far.counter("Udp", "InDatagrams"), before);
}

#[test]
fn a_server_that_is_killed_starts_again_at_once() {
    let Some(machines) = pair(Veth::default()) else { return };
    for _ in 0..3 {
        let mut process = Process::on(&machines[1], "root");
        answers_past_the_kernel(&machines);
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }
    let is_bare = || !machines[1].ip("link show wire").contains("xdp");
    wait_until("the end of the XDP program", is_bare);
}

#[test]
fn a_server_of_nobodys_serves_and_tells_what_takes_a_restart() {
    let Some(machines) = pair(Veth::default()) else { return };
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let Some(entry) = passwd.lines().find(|line| line.starts_with("nobody:")) else {
        return testing::skip("no user nobody here");
    };
    let nobody: u32 = entry.split(':').nth(2).unwrap().parse().unwrap();
    let process = Process::on(&machines[1], "nobody");
    let tasks = procfs::process::Process::new(process.child.id().try_into().unwrap()).unwrap();
    for task in tasks.tasks().unwrap() {
        let status = task.unwrap().status().unwrap();
        assert_eq!([status.ruid, status.euid, status.suid, status.fuid], [nobody; 4]);
        assert_eq!((status.capeff, status.capprm), (0, 0), "{}", status.name);
    }
    answers_past_the_kernel(&machines);
    let [near, far] = &machines;
    far.ip(&format!("link set {WIRE} down"));
    process.await_word("wire is down");
    far.ip(&format!("link set {WIRE} up"));
    process.await_word("wire is up");
    wait_until("the link is up", || near.ip("-br link").contains("LOWER_UP"));
    answers_past_the_kernel(&machines);
    far.ip(&format!("link delete {WIRE}"));
    process.await_word("wire is gone: UDP is served through the kernel; to use another");
    let here = [127, 0, 0, 1];
    let mut client = far.on(|| datagrams::Client::at(here.into(), (here, PORT).into()));
    client.ask("get k\r\n", hit("k", "1"));
}

#[test]
fn what_came_while_a_server_was_stopped_is_answered_or_counted_and_then_all_is() {
    /// Number of datagrams, which is larger than the number of chunks of an AF_XDP port.
    const FLOOD: u64 = 20_000;
    let Some(machines) = pair(Veth::default()) else { return };
    let [near, far] = &machines;
    let process = Process::on(far, "root");
    let mut stream = far.on(|| Client::to((far.v4, PORT).into()));
    let (mut sent, mut flood) = (0, client(near, far));
    for _ in 0..3 {
        process.stop();
        for _ in 0..FLOOD {
            flood.send("get none\r\n");
        }
        sent += FLOOD;
        process.go_on();
        let mut counts = || ["udp_received", "xdp_dropped"].map(|name| stream.stat(name));
        wait_until("all is accounted for", || counts().iter().sum::<u64>() >= sent);
        answers_past_the_kernel(&machines);
        sent += 301;
        let [received, dropped] = counts();
        assert_eq!(received + dropped, sent, "{received} and {dropped}");
        assert!(dropped > 0);
        flood = client(near, far);
    }
    assert_eq!(["udp_unsent", "xdp_invalid"].map(|name| stream.stat(name)), [0; 2]);
}

#[test]
fn what_came_before_a_link_went_down_is_received_when_it_is_up_again() {
    /// Number of datagrams, which is larger than the number of chunks of an AF_XDP port. The last
    /// datagrams are dropped, and so do not make the kernel report the earlier datagrams.
    const FLOOD: u64 = 20_000;
    let Some(machines) = pair(Veth::default()) else { return };
    let [near, far] = &machines;
    let process = Process::on(far, "root");
    let mut stream = far.on(|| Client::to((far.v4, PORT).into()));
    process.stop();
    let mut flood = client(near, far);
    for _ in 0..FLOOD {
        flood.send("get none\r\n");
    }
    far.ip(&format!("link set {WIRE} down"));
    process.go_on();
    // The server waits for events, but the kernel reports none while the interface is down.
    stream.ask("mn\r\n", "MN\r\n");
    far.ip(&format!("link set {WIRE} up"));
    wait_until("the link is up", || near.ip("-br link").contains("LOWER_UP"));
    // The server checks its queue once a second. Until then the kernel drops all datagrams, because
    // the queue has no free chunks.
    wait_until("the flood is received", || stream.stat("udp_received") > 0);
    answers_past_the_kernel(&machines);
    let counts = ["udp_received", "xdp_dropped"].map(|name| stream.stat(name));
    assert_eq!(counts.iter().sum::<u64>(), FLOOD + 301, "{counts:?}");
}

/// Answers that were not sent when the link went down stay in the ring forever.
#[test]
fn a_graceful_end_does_not_wait_for_what_cannot_leave() {
    const CLIENTS: usize = 4;
    let Some(machines) = pair(Veth::default()) else { return };
    let [near, far] = &machines;
    let mut process = Process::on(far, "root");
    let ends = AtomicBool::new(false);
    let clients: Vec<_> = (0..CLIENTS).map(|_| client(near, far)).collect();
    let status = thread::scope(|scope| {
        let all = StopThreads(&ends);
        for client in &clients {
            let request = [&Header::request(1, 0).bytes()[..], b"get none\r\n"].concat();
            let ends = &ends;
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let _ = client.socket.send_to(&request, client.server);
                }
            });
        }
        let mut stream = far.on(|| Client::to((far.v4, PORT).into()));
        wait_until("load", || stream.stat("udp_received") > 1000);
        drop(stream);
        // The process is stopped under load, so its first answers are sent while the link is down.
        process.stop();
        far.ip(&format!("link set {WIRE} down"));
        process.go_on();
        drop(all);
        kill_process(Pid::from_child(&process.child), Signal::USR1).unwrap();
        process.child.wait().unwrap()
    });
    assert!(status.success(), "{status}: {}", process.log());
    process.await_word("Gracefully stopping");
    assert!(!process.log().contains("ends without answering them"));
}

#[test]
fn who_listens_elsewhere_is_told_the_interfaces_addresses() {
    // Without the namespace `_near`, the whole link would disappear.
    let Some([_near, far]) = pair(Veth::default()) else { return };
    let output = far.on(|| {
        hypostyle(&["-p", "0", "-U", "11211", "-l", "127.0.0.1", "--xdp", WIRE, "-t", "1"])
            .output()
            .unwrap()
    });
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let words = "the interface has none of the addresses of -l (127.0.0.1); its addresses are";
    let words = format!("--xdp {WIRE}: {words} {}", far.v4);
    assert!(stderr.contains(&words), "{stderr}");
}

/// Sets the flag that ends the threads of a scope, even if the test panics.
struct StopThreads<'a>(&'a AtomicBool);

impl Drop for StopThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed); // The flag orders no other memory.
    }
}

#[test]
fn a_link_that_goes_down_and_up_under_load_loses_packets_and_nothing_else() {
    let Some(mut network) = Network::new(Veth::default(), Way::Xdp) else { return };
    let value = "v".repeat(1000);
    network.stream.ask(format!("set k 0 0 1000\r\n{value}\r\n"), "STORED\r\n");
    let ends = AtomicBool::new(false);
    let clients = [false, true].map(|is_v6| network.client(is_v6));
    thread::scope(|scope| {
        let all = StopThreads(&ends);
        for client in &clients {
            let request = [&Header::request(1, 0).bytes()[..], b"get k\r\n"].concat();
            client.socket.set_nonblocking(true).unwrap();
            let ends = &ends;
            let load = move || {
                while !ends.load(Ordering::Relaxed) {
                    let _ = client.socket.send_to(&request, client.server);
                    let _ = client.socket.recv(&mut [0; 2000]);
                }
            };
            scope.spawn(load);
        }
        for end in [&network.near, &network.far].into_iter().cycle().take(10) {
            for state in ["down", "up"] {
                end.ip(&format!("link set {WIRE} {state}"));
                let before = network.stream.stat("udp_received");
                if state == "up" {
                    wait_until("packets come", || network.stream.stat("udp_received") > before);
                }
            }
        }
        drop(all);
    });
    drop(clients);
    // The new client uses IPv4, because both ends lost their IPv6 addresses and neighbour entries.
    let mut client = network.client(false);
    client.socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Before this request, the server may still answer requests of the other clients.
    client.ask("get k\r\n", hit("k", &value));
    let before = ["udp_received", "udp_sent", "udp_unsent"].map(|name| network.count(name));
    // A server that loses chunks would stop answering, since the requests outnumber the chunks.
    for _ in 0..10_000 {
        client.ask("get k\r\n", hit("k", &value));
    }
    let after = ["udp_received", "udp_sent", "udp_unsent"].map(|name| network.count(name));
    assert_eq!(after, [before[0] + 10_000, before[1] + 10_000, before[2]]);
    assert_eq!(network.count("xdp_invalid"), 0);
    network.server.stop();
}

/// `sums` simulates a kernel that ignores the metadata for checksums, and `metadata` a kernel
/// before 6.8, which refuses the metadata.
#[test]
fn values_leave_with_the_checksum_of_all_their_parts_where_the_kernel_makes_none() {
    for lack in ["sums", "metadata"] {
        let Some(machines) = pair(Veth::default()) else { return };
        let [near, far] = &machines;
        let words = ["-u", "root", "-l", "::", "-o", "zero_copy=send,zero_copy_min=1"];
        let _process = Process::with(far, &words, &[("HYPOSTYLE_XDP_LACKS", lack)]);
        answers_past_the_kernel(&machines);
        let mut stream = far.on(|| Client::to((far.v4, PORT).into()));
        let mut clients = [
            client(near, far),
            near.on(|| datagrams::Client::at(near.v6.into(), (far.v6, PORT).into())),
        ];
        // The values need one or two parts or several datagrams, and end at even and odd offsets.
        let lengths = [1, 2, 3, 255, 1301, 1302, 2031, 2032, 2033, 2034, 3501, 9001, 20_000];
        for (number, bytes) in lengths.into_iter().enumerate() {
            let value: String = ('a'..='z').cycle().skip(number).take(bytes).collect();
            let key = "k".repeat(1 + number % 3);
            stream.ask(format!("set {key} 0 0 {bytes}\r\n{value}\r\n"), "STORED\r\n");
            let sent = |stream: &mut Client| stream.stats("udp")["zero_copy_bytes"].parse::<u64>();
            let before = sent(&mut stream).unwrap();
            for client in &mut clients {
                client.ask(format!("get {key}\r\n"), hit(&key, &value));
            }
            assert_eq!(sent(&mut stream).unwrap() - before, 2 * bytes as u64, "{lack}");
        }
        assert_eq!(near.counter("Udp", "InCsumErrors"), 0, "{lack}");
        assert_eq!(stream.stats("udp")["xdp_invalid"], "0", "{lack}");
    }
}

/// `parts` simulates a kernel before 6.6, and `copies` simulates a zero-copy driver.
#[test]
fn values_are_copied_where_they_cannot_be_sent_from_where_they_lie_and_take_no_memory() {
    let lacks = [("parts", "native, copied"), ("copies", "native, not copied")];
    for (zero_copy, (lack, mode)) in ["zero_copy=full", "zero_copy=send"]
        .into_iter()
        .flat_map(|zero_copy| lacks.map(|lack| (zero_copy, lack)))
    {
        let Some(machines) = pair(Veth::default()) else { return };
        let [near, far] = &machines;
        let words = ["-u", "root", "-m", "64", "-o", zero_copy];
        let process = Process::with(far, &words, &[("HYPOSTYLE_XDP_LACKS", lack)]);
        let off = "wire cannot send values without a copy, so -o zero_copy is off";
        assert!(process.log().contains(off), "{lack}: {}", process.log());
        answers_past_the_kernel(&machines);
        let mut stream = far.on(|| Client::to((far.v4, PORT).into()));
        let mut client = client(near, far);
        let mut value_bytes = 0;
        for (number, bytes) in [1300, 5000, 60_000].into_iter().enumerate() {
            let value: String = ('a'..='z').cycle().skip(number).take(bytes).collect();
            let set = format!("set k{number} 0 0 {bytes}\r\n{value}\r\n");
            client.send_parts(set.as_bytes(), 1392, |_| {});
            assert_eq!(client.receive().0, b"STORED\r\n");
            let hit = hit(&format!("k{number}"), &value);
            client.ask(format!("get k{number}\r\n"), &hit);
            stream.ask(format!("get k{number}\r\n"), &hit);
            value_bytes += bytes as u64;
        }
        let settings = stream.stats("settings");
        assert_eq!((&*settings["zero_copy"], &*settings["xdp_mode"]), ("off", mode), "{lack}");
        let mut row = |of: &str, name: &str| -> u64 { stream.stats(of)[name].parse().unwrap() };
        assert!(row("udp", "copied_bytes") > value_bytes, "{lack}");
        let none = [
            ("udp", "zero_copy_bytes"),
            ("store", "arena_kept_bytes"),
            ("store", "arena_copied_bytes"),
            ("memory", "arena_bytes"),
            ("memory", "arena_free_bytes"),
            ("udp", "xdp_invalid"),
            ("udp", "udp_unsent"),
        ];
        for (of, name) in none {
            assert_eq!(row(of, name), 0, "{name}, {lack}, {zero_copy}");
        }
        // `ring_bytes` is the same as without `-o zero_copy`.
        assert_eq!(row("memory", "ring_bytes"), 4096 * 2048, "{lack}");
    }
}
