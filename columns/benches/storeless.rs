//! Instructions per request of a column without a store, over TCP.
//!
//! Where: outside the cache. The program runs itself under callgrind. In these runs a column serves
//! one connection with an executor that has no store, so the figures are the costs of the loop, of
//! the connection and of the protocol. This is a program of its own, because a second executor in
//! the bench `instructions` would change what the compiler inlines there.
//! Invariant: a figure is the difference of a run of 2N and a run of N requests, divided by N. Only
//! the column's thread is counted, without the kernel's instructions.
//! Source: valgrind's callgrind manual, `--toggle-collect`.

#[path = "../src/storeless.rs"]
mod storeless;

use std::error::Error;
use std::io::{Read, Write, stdout};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

use columns::datapath::list::Datapaths;
use columns::settings::Settings;
use columns::shared::Shared;
use columns::stream::Kernel;
use columns::{Column, ColumnListener, End, Parts, Timers, coarse_now, executor, out};
use net::{Endpoint, ReservedPort, Waker};
use protocol::ProtocolMode;
use storeless::Storeless;
use testing::callgrind::{self, per_operation};

/// Pattern of function names. Callgrind counts the matching function and the functions it calls.
const COUNTED: &str = "*measured_column*";
/// Number of requests (N above).
const REQUESTS: u32 = 8000;
/// Numbers of requests that the client sends at once, before it waits for the replies.
const TOGETHER: [u32; 2] = [1, 16];

/// Each kind of request, with its reply.
const KINDS: [(&str, &str, &str); 3] = [
    ("get, miss", "get hypostyle:bench:cluster:key:00000001\r\n", "END\r\n"),
    ("set", "set hypostyle:bench:cluster:key:00000001 0 0 5\r\nvalue\r\n", "STORED\r\n"),
    ("mn", "mn\r\n", "MN\r\n"),
];

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The program's one argument is the number of functions to show for each row, or nothing. In the
/// runs under callgrind, the arguments are a kind of request, and the numbers of requests of a turn
/// and of turns.
fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match &words[..] {
        [] => drive(0),
        [functions] => drive(functions.parse()?),
        [kind, together, turns] => {
            let kind = KINDS.iter().find(|(name, ..)| name == kind);
            let (_, request, reply) = kind.ok_or("there is no such kind of request")?;
            let together = together.parse()?;
            serve(&request.repeat(together), &reply.repeat(together), turns.parse()?)
        }
        _ => Err("the only argument is the number of functions to show for each row".into()),
    }
}

fn drive(functions: usize) -> Outcome<()> {
    writeln!(stdout(), "{}", callgrind::version()?)?;
    for (kind, together) in KINDS.iter().flat_map(|(kind, ..)| TOGETHER.map(|it| (*kind, it))) {
        let count = |requests: u32| {
            let [together, turns] = [together, requests / together].map(|it| it.to_string());
            callgrind::count(Some(COUNTED), &[kind, &together, &turns])
        };
        let profile = count(2 * REQUESTS)?.less(&count(REQUESTS)?);
        let name = format!("{kind}, {together} in flight");
        let each = per_operation(profile.all(), REQUESTS);
        writeln!(stdout(), "  {name:<40}{each:>10.1} instructions")?;
        for (function, instructions) in profile.by_function().iter().take(functions) {
            let each = per_operation(*instructions, REQUESTS);
            writeln!(stdout(), "      {each:>9.1}  {function}")?;
        }
    }
    Ok(())
}

/// Starts a column, and sends `request` to it in each of `turns` turns.
fn serve(request: &str, reply: &str, turns: u32) -> Outcome<()> {
    let socket = Arc::new(ReservedPort::take((Ipv4Addr::LOCALHOST, 0).into())?.listen(1)?);
    let Endpoint::Tcp(address) = *socket.endpoint() else {
        return Err("the listener is not of TCP".into());
    };
    let (waker, end) = (Arc::new(Waker::new()?), Arc::<End>::default());
    let column = Column::new(Parts {
        executor: Storeless,
        shared: (Arc::new(Shared::new(Settings::default())), 0),
        listeners: vec![ColumnListener { socket, speak: ProtocolMode::Auto, shared: false }],
        way: Kernel,
        datapaths: Datapaths::default(),
        stealing: None,
        migration: None,
        waker: Arc::clone(&waker),
        end: Arc::clone(&end),
        calls: Arc::default(),
        timers: Timers::new(coarse_now(), false),
    })?;
    let thread = std::thread::spawn(|| measured_column(column));
    let mut client = TcpStream::connect(address)?;
    client.set_nodelay(true)?;
    let mut got = vec![0; reply.len()];
    for _ in 0..turns {
        client.write_all(request.as_bytes())?;
        client.read_exact(&mut got)?;
        if got != reply.as_bytes() {
            return Err(format!("a wrong reply: {:?}", String::from_utf8_lossy(&got)).into());
        }
    }
    end.tell_at_once();
    waker.wake();
    match thread.join() {
        Ok(served) => Ok(served?),
        Err(_) => Err("the column panicked".into()),
    }
}

/// Contains all code that callgrind counts.
#[inline(never)]
fn measured_column(column: Column<Storeless, Kernel>) -> std::io::Result<()> {
    column.run()
}
