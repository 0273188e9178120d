//! Tests of the crate against the kernel: the result of each call in each state of a socket.
//!
//! Where: on socket pairs and loopback, in the test's process.
//! Invariant: no network other than loopback is used; every wait ends by a deadline.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use net::{
    Accepted, Calls, Endpoint, Epoll, Event, Interest, Listener, ReadResult, ReservedPort,
    SecondTimer, Stream, Timeout, Waker, WriteResult, pin_thread, thread_cpus,
};

/// Longest wait for an event. A longer wait fails the test.
const DEADLINE: Duration = Duration::from_secs(60);
const SOON: Timeout = Timeout::Within(DEADLINE);

fn pair() -> (Stream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Stream::from(OwnedFd::from(ours)), theirs)
}

fn wait(epoll: &mut Epoll, timeout: Timeout) -> Vec<Event> {
    epoll.wait(timeout, &Calls::default()).unwrap().collect()
}

#[test]
fn a_read_says_what_it_brought() {
    let calls = Calls::default();
    let (ours, mut theirs) = pair();
    let mut buffer = [0; 8];
    assert_eq!(ours.read(&mut buffer, &calls), ReadResult::Empty);
    theirs.write_all(b"abcde").unwrap();
    assert_eq!(ours.read(&mut buffer, &calls), ReadResult::Bytes(5));
    assert_eq!(&buffer[..5], b"abcde");
    theirs.write_all(b"0123456789").unwrap();
    let (mut first, mut second) = ([0; 4], [0; 8]);
    let mut pieces = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    assert_eq!(ours.read_vectored(&mut pieces, &calls), ReadResult::Bytes(10));
    assert_eq!((&first, &second[..6]), (b"0123", &b"456789"[..]));
    drop(theirs);
    assert_eq!(ours.read(&mut buffer, &calls), ReadResult::End);
    assert_eq!(calls.reads.get(), 4);
}

#[test]
fn a_write_says_what_was_taken() {
    let calls = Calls::default();
    let (ours, mut theirs) = pair();
    assert_eq!(ours.write(b"abc", &calls), WriteResult::Bytes(3));
    let pieces = [IoSlice::new(b"de"), IoSlice::new(b"f")];
    assert_eq!(ours.write_vectored(&pieces, &calls), WriteResult::Bytes(3));
    let mut got = [0; 6];
    theirs.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"abcdef");
    let chunk = [b'x'; 1 << 16];
    let mut writes = 2;
    loop {
        writes += 1;
        match ours.write(&chunk, &calls) {
            WriteResult::Bytes(0) => break,
            WriteResult::Bytes(_) => assert!(writes < 10_000, "the socket never fills"),
            WriteResult::Broken => panic!("broken"),
        }
    }
    drop(theirs);
    assert_eq!(ours.write(b"late", &calls), WriteResult::Broken);
    assert_eq!(calls.writes.get(), writes + 1);
}

#[test]
fn an_edge_is_reported_once_and_the_end_with_it() {
    let calls = Calls::default();
    let mut epoll = Epoll::new(8).unwrap();
    let (ours, mut theirs) = pair();
    epoll.add(&ours, 7, Interest::Read, &calls).unwrap();
    assert!(wait(&mut epoll, Timeout::Zero).is_empty());
    theirs.write_all(b"abc").unwrap();
    let events = wait(&mut epoll, SOON);
    assert_eq!(events.len(), 1);
    assert!(events[0].token == 7 && events[0].readable && !events[0].ended);
    // The bytes have not been read, but are not reported again. The next byte is reported.
    assert!(wait(&mut epoll, Timeout::Zero).is_empty());
    theirs.write_all(b"d").unwrap();
    assert_eq!(wait(&mut epoll, SOON).len(), 1);
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let events = wait(&mut epoll, SOON);
    assert!(events[0].readable && events[0].ended);
    epoll.change(&ours, 8, Interest::Write, &calls).unwrap();
    let events = wait(&mut epoll, SOON);
    assert!(events[0].token == 8 && events[0].writable && !events[0].readable);
    assert_eq!(calls.controls.get(), 2);
}

#[test]
fn a_wait_ends_by_its_timeout_and_not_before() {
    let mut epoll = Epoll::new(1).unwrap();
    let before = Instant::now();
    assert!(wait(&mut epoll, Timeout::Within(Duration::from_micros(10_100))).is_empty());
    assert!(before.elapsed() >= Duration::from_millis(10));
}

#[test]
fn an_exact_wait_is_not_rounded_up_to_a_millisecond() {
    let mut epoll = Epoll::new(1).unwrap();
    let least = Duration::from_micros(150);
    // A busy machine lengthens most sleeps, so the test repeats until one sleep is short enough.
    let until = Instant::now() + DEADLINE;
    let mut shortest = DEADLINE;
    while shortest >= Duration::from_millis(1) {
        let start = Instant::now();
        assert!(wait(&mut epoll, Timeout::Exactly(least)).is_empty());
        shortest = shortest.min(start.elapsed());
        assert!(shortest >= least && start < until, "{shortest:?}");
    }
    let (ours, mut theirs) = pair();
    epoll.add(&ours, 7, Interest::Both, &Calls::default()).unwrap();
    theirs.write_all(b"a").unwrap();
    let events = wait(&mut epoll, Timeout::Exactly(DEADLINE));
    assert!(events.len() == 1 && events[0].token == 7 && events[0].readable);
}

#[test]
fn a_ring_before_the_wait_is_not_lost() {
    let calls = Calls::default();
    let mut epoll = Epoll::new(1).unwrap();
    let waker = Waker::new().unwrap();
    epoll.add(&waker, 1, Interest::Wake, &calls).unwrap();
    waker.wake();
    waker.wake();
    assert_eq!(wait(&mut epoll, SOON).len(), 1);
    assert_eq!(wait(&mut epoll, SOON).len(), 1);
    waker.clear();
    assert!(wait(&mut epoll, Timeout::Zero).is_empty());
}

#[test]
fn a_second_timer_fires_again_and_again() {
    let calls = Calls::default();
    let mut epoll = Epoll::new(8).unwrap();
    let timer = SecondTimer::new(rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 }).unwrap();
    epoll.add(&timer, 7, Interest::Wake, &calls).unwrap();
    for _ in 0..2 {
        let events = wait(&mut epoll, SOON);
        assert!(matches!(events[..], [Event { token: 7, .. }]), "{events:?}");
        timer.clear();
    }
}

#[test]
fn listeners_share_a_port_among_themselves_only() {
    let calls = Calls::default();
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let hold = ReservedPort::take(any.parse::<SocketAddr>().unwrap()).unwrap();
        let address = hold.address();
        assert_ne!(address.port(), 0);
        let listeners = [hold.listen(16).unwrap(), hold.listen(16).unwrap()];
        drop(hold);
        assert_eq!(*listeners[0].endpoint(), Endpoint::Tcp(address));
        assert!(ReservedPort::take(address).is_err(), "somebody listens on {address}");
        let mut client = TcpStream::connect(address).unwrap();
        let accepted = accept(&listeners, &calls);
        assert_eq!(accepted.peer().unwrap(), Some(client.local_addr().unwrap()));
        assert_eq!(accepted.write(b"hello", &calls), WriteResult::Bytes(5));
        accepted.finish();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"hello");
        assert!(listeners.iter().all(|it| matches!(it.accept(&calls), Accepted::Empty)));
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(ReservedPort::take(other.local_addr().unwrap()).is_err());
}

/// Accepts a connection; repeats the attempt, because the client may be connected earlier.
fn accept(listeners: &[Listener], calls: &Calls) -> Stream {
    let until = Instant::now() + DEADLINE;
    loop {
        for listener in listeners {
            if let Accepted::Stream(stream) = listener.accept(calls) {
                return stream;
            }
        }
        assert!(Instant::now() < until, "no connection arrived");
        std::thread::yield_now();
    }
}

#[test]
fn a_unix_path_that_is_too_long_is_refused() {
    let path = std::env::temp_dir().join("x".repeat(200));
    assert!(Listener::unix(&path, 0o700, 16).is_err());
    assert!(!path.exists());
}

#[test]
fn a_thread_runs_where_it_is_pinned() {
    let last = *thread_cpus().unwrap().last().unwrap();
    std::thread::spawn(move || {
        pin_thread(last).unwrap();
        assert_eq!(thread_cpus().unwrap(), [last]);
        assert!(pin_thread(1 << 20).is_err());
    })
    .join()
    .unwrap();
    assert!(thread_cpus().unwrap().contains(&last));
}

#[test]
fn of_servers_that_start_at_once_on_one_unix_path_one_gets_it() {
    const ROUNDS: usize = 40;
    const SERVERS: usize = 6;
    let directory = std::env::temp_dir().join(format!("hypostyle-at-once-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("socket");
    for round in 0..ROUNDS {
        // Leaves a socket file on which no server answers.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let start = std::sync::Barrier::new(SERVERS);
        let take = || {
            start.wait();
            Listener::unix(&path, 0o700, 16)
        };
        let listeners: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..SERVERS).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let taken: Vec<_> = listeners.iter().flatten().collect();
        assert_eq!(taken.len(), 1, "round {round}");
        UnixStream::connect(&path).unwrap();
        taken[0].remove_file();
        assert!(!path.exists(), "the file belongs to the listening server");
    }
    std::fs::remove_dir(&directory).unwrap();
}
