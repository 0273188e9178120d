//! A server whose connections travel in memory, and a relay that connects TCP clients with it.
//!
//! Where: in the test's own process. A client connects over TCP to the relay, which passes the
//! bytes to a stream of `in_memory`.
//! Invariant: dropping a `Relay` ends its columns. The relay's threads end with their connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use columns::datapath::list::Datapaths;
use columns::settings::Migrate;
use columns::{Column, ColumnListener, End, Migration, Parts, Timers, coarse_now};
use hypostyle::clock::Clock;
use hypostyle::execute::Context;
use hypostyle::machine::cpus::Cpus;
use hypostyle::machine::ram::Ram;
use hypostyle::shared::Shared;
use hypostyle::start::flags::{self, Action};
use hypostyle::start::settings::Settings;
use net::Waker;
use store::Store;

use crate::in_memory::{InMemory, Pipe, Queue};

/// Columns that serve in memory, and the address at which the relay accepts their clients.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    end: Arc<End>,
    columns: Vec<(Arc<Waker>, JoinHandle<()>)>,
}

impl Relay {
    pub(crate) fn start(words: &[&str], migrate: Migrate) -> Relay {
        let words = words.iter().map(|word| (*word).into());
        let action =
            flags::parse(words, &Cpus { list: vec![0], quota: None }, &Ram::default()).unwrap();
        let Action::Serve(mut settings, _) = action else { panic!("no settings") };
        settings.columns.migrate = migrate;
        Relay::of(*settings)
    }

    fn of(settings: Settings) -> Relay {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let clock = Clock::new(now.as_secs().try_into().unwrap());
        let (speak, count) = (settings.protocol, settings.columns.count);
        let store = Store::new(&settings.store_config()).unwrap();
        let shared = Shared::new(Arc::new(settings), store, clock.process_started);
        let wakers: Vec<_> = (0..count).map(|_| Arc::new(Waker::new().unwrap())).collect();
        shared.columns.pages.set_wakers(&wakers);
        let mut migrations = Migration::of_columns(&shared.columns.settings, &wakers).into_iter();
        let (end, start) = (Arc::<End>::default(), coarse_now());
        let queues: Vec<_> = (0..count).map(|_| Arc::new(Queue::new())).collect();
        let columns = wakers.into_iter().enumerate().map(|(number, waker)| {
            let requests = Arc::clone(&shared.requests[number]);
            let column = Column::new(Parts {
                executor: Context::new(shared.store.column(), requests, Arc::clone(&shared), clock),
                shared: (Arc::clone(&shared.columns), number),
                way: InMemory::new(Arc::clone(&waker)),
                listeners: vec![ColumnListener {
                    socket: Arc::clone(&queues[number]),
                    speak,
                    shared: false,
                }],
                datapaths: Datapaths::default(),
                stealing: None,
                migration: migrations.next(),
                waker: Arc::clone(&waker),
                end: Arc::clone(&end),
                calls: Arc::default(),
                timers: Timers::new(start, number == 0),
            });
            let column = column.unwrap();
            (waker, thread::spawn(move || column.run().unwrap()))
        });
        let columns = columns.collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || accept(&listener, &queues));
        Relay { address, end, columns }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end.tell_at_once();
        self.columns.iter().for_each(|(waker, _)| waker.wake());
        for (_, thread) in self.columns.drain(..) {
            thread.join().unwrap();
        }
        // The relay's listener ends at the next connection, which finds its queues alone.
        drop(TcpStream::connect(self.address));
    }
}

/// Accepts clients until no column uses the queues any more.
fn accept(listener: &TcpListener, queues: &[Arc<Queue>]) {
    for number in 0.. {
        let (client, peer) = listener.accept().unwrap();
        let queue = &queues[number % queues.len()];
        if Arc::strong_count(queue) == 1 {
            return;
        }
        client.set_nodelay(true).unwrap();
        let pipe = queue.connect(peer);
        let (reads, from_client) = (Arc::clone(&pipe), client.try_clone().unwrap());
        thread::spawn(move || pass(from_client, &reads));
        thread::spawn(move || give_back(client, &pipe));
    }
}

/// Passes the bytes of a client to the server until the client ends.
fn pass(mut client: TcpStream, pipe: &Pipe) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        pipe.pass(&bytes[..count]);
    }
    pipe.pass(&[]);
}

/// Passes the bytes of the server to a client until the server closes the connection.
fn give_back(mut client: TcpStream, pipe: &Pipe) {
    loop {
        let bytes = pipe.take();
        if bytes.is_empty() {
            break;
        }
        let is_gone = client.write_all(&bytes).is_err();
        pipe.acknowledge(bytes.len());
        if is_gone {
            break;
        }
    }
    // The other thread reads on: unread bytes would make the kernel drop the last answer.
    drop(client.shutdown(Shutdown::Write));
}
