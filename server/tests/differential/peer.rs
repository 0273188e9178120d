//! One of the two servers compared: sends it batches, and reads replies so that they can be
//! compared with the other's.
//!
//! Path: client side. Invariant: each command's reply ends at a fence of its own, and CAS uniques
//! in replies are replaced by their number of appearance for their key.

use crate::commands::{Command, Unique};
use crate::live::{Server, Stop, Wire};
use std::collections::{HashMap, HashSet};

const FENCE: &[u8] = b"mn\r\n";
const FENCE_REPLY: &[u8] = b"MN\r\n";

/// A server with one connection.
pub(crate) struct Peer {
    server: Server,
    wire: Wire,
    /// All uniques seen for each key, in order of first appearance.
    seen: HashMap<Vec<u8>, Vec<u64>>,
    mutant: Option<Mutant>,
    touched: HashSet<Vec<u8>>,
}

/// A bug planted into replies, to show that it is found.
#[derive(Clone, Copy)]
pub(crate) enum Mutant {
    /// A touched item is shown with other flags.
    FlagsAfterTouch,
}

/// Sends a batch to both and compares; the first reply that differs, and both forms of it.
pub(crate) fn run_batch(peers: &mut [Peer; 2], batch: &[Command]) -> Option<(usize, [Vec<u8>; 2])> {
    let [first, second] = peers;
    let [ours, theirs] = std::thread::scope(|scope| {
        let ours = scope.spawn(|| first.exchange(batch));
        let theirs = second.exchange(batch);
        [ours.join().unwrap(), theirs]
    });
    let mut pairs = ours.into_iter().zip(theirs).enumerate();
    let (index, (ours, theirs)) = pairs.find(|(_, (ours, theirs))| ours != theirs)?;
    Some((index, [ours, theirs]))
}

impl Peer {
    pub(crate) fn new(server: Server) -> Peer {
        let wire = server.connect();
        let (seen, touched) = (HashMap::new(), HashSet::new());
        Peer { server, wire, seen, mutant: None, touched }
    }

    pub(crate) fn mutant(server: Server, mutant: Mutant) -> Peer {
        Peer { mutant: Some(mutant), ..Peer::new(server) }
    }

    pub(crate) fn name(&self) -> &str {
        self.server.name()
    }

    /// The replies to a batch, one for each command.
    fn exchange(&mut self, batch: &[Command]) -> Vec<Vec<u8>> {
        let mut stream = Vec::new();
        for command in batch {
            stream.extend_from_slice(&command.bytes(self.unique(command)));
            stream.extend_from_slice(FENCE);
        }
        // A server that waits for its replies to be read need not read on: write and read at once.
        let mut sender = self.wire.sender();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.send(&stream));
            batch.iter().map(|command| self.reply(command)).collect()
        })
    }

    fn unique(&self, command: &Command) -> u64 {
        let seen = self.seen.get(command.key()).map_or(&[][..], Vec::as_slice);
        let seen = match command.unique {
            Unique::Number(number) => return number,
            Unique::Seen => seen.last(),
            Unique::Before => seen.iter().rev().nth(1),
        };
        seen.copied().unwrap_or(12_345_678)
    }

    /// One command's reply, in a form that can be compared; a connection that ends shows as such.
    fn reply(&mut self, command: &Command) -> Vec<u8> {
        let mut reply = Vec::new();
        if let Err(stop) = self.read(command, &mut reply) {
            reply.extend_from_slice(format!("<{stop:?}>").as_bytes());
        }
        if self.mutant.is_some() && command.verb.name() == "touch" && reply == b"TOUCHED\r\n" {
            self.touched.insert(command.key().to_vec());
        }
        reply
    }

    fn read(&mut self, command: &Command, reply: &mut Vec<u8>) -> Result<(), Stop> {
        loop {
            let line = self.wire.line()?;
            if line == FENCE_REPLY {
                return Ok(());
            }
            let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
            match words[..] {
                [b"VALUE", key, flags, bytes, ref unique @ ..] if command.verb.is_fetch() => {
                    let flags = self.mutated(key, flags);
                    reply.extend_from_slice(&[b"VALUE", key, &flags, bytes].join(&b' '));
                    for unique in unique {
                        let appearance = self.appearance(key, unique);
                        reply.extend_from_slice(format!(" unique {appearance}").as_bytes());
                    }
                    reply.extend_from_slice(b"\r\n");
                    let bytes: usize = str::from_utf8(bytes).unwrap().parse().unwrap();
                    let value = self.wire.exactly(bytes + 2)?;
                    reply.extend_from_slice(&value);
                }
                _ => reply.extend_from_slice(&line),
            }
        }
    }

    fn appearance(&mut self, key: &[u8], unique: &[u8]) -> usize {
        let unique: u64 = str::from_utf8(unique).unwrap().parse().unwrap();
        let seen = self.seen.entry(key.to_vec()).or_default();
        if let Some(back) = seen.iter().rev().position(|&one| one == unique) {
            return seen.len() - back - 1;
        }
        seen.push(unique);
        seen.len() - 1
    }

    fn mutated(&self, key: &[u8], flags: &[u8]) -> Vec<u8> {
        match self.mutant {
            Some(Mutant::FlagsAfterTouch) if self.touched.contains(key) => b"4".to_vec(),
            _ => flags.to_vec(),
        }
    }
}
