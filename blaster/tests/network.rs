//! A server on a machine of its own: over a link, by sockets and past the kernel.
//!
//! Where: outside of everything; both ends are network namespaces of this machine.
//! Invariant: no figure is asserted that a slow machine could change.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use testing::namespace::{Namespace, Veth, WIRE, pair};

fn kvblaster(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvblaster"));
    command.args(words.split_whitespace());
    command
}

/// A null server, killed with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(machine: &Namespace, place: &str) -> Server {
    let start = || kvblaster(&format!("reflect {place}")).stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Server(machine.on(start));
    // It says where it answers as soon as it does.
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("answering on "), "{line}");
    server
}

fn ran(machine: &Namespace, target: &str) -> String {
    let words = "run -q -w mix-a --keys 1000 -c 1 -d 8 -n 3000 --schedule 1h+1x1h --timeout 60s";
    let output = machine.on(|| kvblaster(&format!("{words} {target}")).output().unwrap());
    let (out, err) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{err}");
    String::from_utf8(out).unwrap()
}

#[test]
fn what_a_server_in_another_network_namespace_takes_is_told() {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let _server = serve(&far, "udp://0.0.0.0:11211");
    let told = ran(&near, &format!("udp://{}:11211", far.v4));
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
