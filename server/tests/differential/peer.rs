//! One of the two servers under comparison, with a connection for each protocol.
//!
//! Where: client side.
//! Invariant: a batch ends when every command is answered or the connection is closed. After a
//! closed connection, the next batch opens a new connection.

use crate::command::{Command, Protocol};
use crate::lies::Liar;
use crate::live::{Server, Stop, Wire};
use crate::replies::{self, Piece, Reply, Seen};
use std::ops::Range;

pub(crate) struct Peer {
    server: Server,
    wires: [Option<Wire>; 3],
    seen: Seen,
    liar: Option<Liar>,
}

/// Returns all replies of the first server to the batch, or the index of the first difference and
/// both servers' replies there.
pub(crate) fn run_batch(
    peers: &mut [Peer; 2],
    batch: &[Command],
) -> Result<Vec<Reply>, Box<(usize, [Reply; 2])>> {
    let [first, second] = peers;
    let [ours, theirs] = std::thread::scope(|scope| {
        let ours = scope.spawn(|| first.exchange(batch));
        let theirs = second.exchange(batch);
        [ours.join().unwrap(), theirs]
    });
    let mut pairs = ours.iter().zip(&theirs);
    match pairs.position(|(ours, theirs)| !ours.is_like(theirs)) {
        Some(index) => Err(Box::new((index, [ours[index].clone(), theirs[index].clone()]))),
        None => Ok(ours),
    }
}

impl Peer {
    pub(crate) fn new(server: Server) -> Peer {
        Peer { server, wires: [None, None, None], seen: Seen::new(), liar: None }
    }

    pub(crate) fn lying(server: Server, liar: Liar) -> Peer {
        Peer { liar: Some(liar), ..Peer::new(server) }
    }

    pub(crate) fn name(&self) -> &str {
        self.server.name()
    }

    fn exchange(&mut self, batch: &[Command]) -> Vec<Reply> {
        let Some(protocol) = batch.first().map(|command| command.protocol) else {
            return Vec::new();
        };
        let mut wire = match self.wires[place(protocol)].take() {
            Some(wire) => wire,
            None => open(&self.server, protocol),
        };
        let mut replies = vec![Reply::default(); batch.len()];
        let mut stop = None;
        // A server that closes a connection with unread input loses unsent replies, so a command
        // that closes the connection is sent alone.
        let calm = batch.len() - usize::from(batch.iter().any(|command| command.closes));
        for range in [0..calm, calm..batch.len()] {
            if !range.is_empty() && stop.is_none() {
                stop = self.pass(&mut wire, (batch, range), &mut replies);
            }
        }
        if stop.is_none() {
            self.wires[place(protocol)] = Some(wire);
        }
        replies
    }

    /// Sends the commands `range` of `batch`. Returns the `Stop` of a read that failed.
    fn pass(
        &mut self,
        wire: &mut Wire,
        (batch, range): (&[Command], Range<usize>),
        replies: &mut [Reply],
    ) -> Option<Stop> {
        let protocol = batch[0].protocol;
        let mut stream = Vec::new();
        for number in range.clone() {
            let seen = self.seen.get(batch[number].key()).map_or(&[][..], Vec::as_slice);
            stream.extend_from_slice(&batch[number].bytes(seen));
            stream.extend_from_slice(&replies::fence(protocol, number));
        }
        // The server may read the last command's fence as part of a value, so add another fence.
        stream.extend_from_slice(&replies::fence(protocol, batch.len()));
        // A server whose replies are not read may stop reading, so write and read in two threads.
        let mut sender = wire.sender();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.send(&stream));
            self.read(wire, (batch, range), replies)
        })
    }

    fn read(
        &mut self,
        wire: &mut Wire,
        (batch, range): (&[Command], Range<usize>),
        replies: &mut [Reply],
    ) -> Option<Stop> {
        let mut at = range.start;
        loop {
            let piece = match replies::read(wire, batch[0].protocol) {
                Ok(Piece::Fence(number)) if number >= batch.len() => return None,
                Ok(Piece::Fence(number)) => {
                    let liar = self.liar.as_ref();
                    if let Some(piece) = liar.and_then(|liar| liar.adds(&batch[at], &replies[at])) {
                        replies::append(&mut replies[at], &batch[at], piece, &mut self.seen);
                    }
                    at = (number + 1).min(range.end - 1);
                    continue;
                }
                Ok(piece) => piece,
                Err(stop) => {
                    let (alive, how) = (self.server.is_alive(), format!("{stop:?}"));
                    replies[at].end(if alive { &how } else { "dead" });
                    return Some(stop);
                }
            };
            let piece = match &mut self.liar {
                Some(liar) => liar.instead_of(&batch[at], piece),
                None => piece,
            };
            replies::append(&mut replies[at], &batch[at], piece, &mut self.seen);
        }
    }
}

fn place(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Text => 0,
        Protocol::Meta => 1,
        Protocol::Binary => 2,
    }
}

/// Sends a fence first, because a connection's first byte decides its protocol, and the first byte
/// of a batch may be malformed.
fn open(server: &Server, protocol: Protocol) -> Wire {
    let mut wire = server.connect();
    wire.send(&replies::fence(protocol, 0));
    let first = replies::read(&mut wire, protocol);
    assert!(matches!(first, Ok(Piece::Fence(0))), "{}: {first:?}", server.name());
    wire
}
