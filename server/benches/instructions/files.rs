//! Lists the source files of the tree that serve one `get` over TCP (`--files`).
//!
//! Where: a run under callgrind starts a whole server of one column, and sends requests to it.
//! Invariant: a file is on the path if a run of 2N requests executes more of its instructions than
//! a run of N requests, by at least one for each two requests. Work of a second or of a connection
//! is in both runs, and is subtracted.

use std::io::{Read, Write};
use std::net::TcpStream;

use hypostyle::run::Server;
use hypostyle::start::settings::{Listen, Port, Settings};
use protocol::ProtocolMode;
use testing::callgrind::per_operation;

use crate::measure::report::say;
use crate::measure::{Outcome, fail};
use crate::{Options, counted};

/// The operation's name in a run under callgrind.
pub(crate) const OP: &str = "tcp: get, hit";

/// Number of requests (N above). A second of background work must not look like a request's.
const REQUESTS: u32 = 4000;

const SET: &[u8] = b"set key 0 0 5\r\nvalue\r\n";
const GET: &[u8] = b"get key\r\n";
const HIT: &[u8] = b"VALUE key 0 5\r\nvalue\r\nEND\r\n";

/// Prints the files and their instructions for each request.
pub(crate) fn list(options: &Options) -> Outcome<()> {
    let short = counted(OP, REQUESTS, options)?;
    let long = counted(OP, 2 * REQUESTS, options)?;
    let files = long.less(&short).by_source_file();
    let on_path = files.iter().filter(|(_, instructions)| *instructions >= i64::from(REQUESTS) / 2);
    let on_path: Vec<_> = on_path.collect();
    for (file, instructions) in &on_path {
        let each = per_operation(*instructions, REQUESTS);
        say(&format!("  {each:>8.1}  {file}\n"))?;
    }
    say(&format!("{} source files serve a get over TCP\n", on_path.len()))
}

/// Serves `count` requests, one at a time.
pub(crate) fn run(count: u32) -> Outcome<()> {
    let host = Some("127.0.0.1".to_owned());
    let listen = vec![Listen { host, port: Port::Any, protocol: ProtocolMode::Auto }];
    let server = Server::start(Settings { listen, ..Settings::default() })?;
    let Some(address) = server.addresses().first().copied() else {
        return fail("the server has no address".to_owned());
    };
    let mut client = TcpStream::connect(address)?;
    client.set_nodelay(true)?;
    ask(&mut client, SET, b"STORED\r\n")?;
    for _ in 0..count {
        ask(&mut client, GET, HIT)?;
    }
    server.stop();
    Ok(())
}

fn ask(client: &mut TcpStream, request: &[u8], due: &[u8]) -> Outcome<()> {
    client.write_all(request)?;
    let mut reply = [0; HIT.len()];
    let reply = &mut reply[..due.len()];
    client.read_exact(reply)?;
    match reply == due {
        true => Ok(()),
        false => fail(format!("a wrong answer: {:?}", String::from_utf8_lossy(reply))),
    }
}
