//! A column's connections, found by their tokens.
//!
//! Where: an event carries a connection's token; `Connections::get` finds the connection.
//! Invariant: a token never names two connections. An entry may be reused, but its next connection
//! gets a new birth number, so the token of a closed connection finds nothing.
//! Memory grows only in `insert`, when more connections are open than ever before.

use memory::plant::{Fault, is};
use slab::Slab;

use crate::connection::Connection;
use crate::executor::Executor;
use crate::stream::Stream;

/// Birth numbers have 31 bits and wrap around. The top bit of a token therefore stays 0, so that
/// every connection's token is below `TOKEN_OTHER`.
const BIRTH_MASK: u64 = 0x7fff_ffff;

/// The lowest token that never names a connection.
pub(crate) const TOKEN_OTHER: u64 = 1 << 63;

/// The low 32 bits of a token are its entry's index; the bits above are a birth number.
#[derive(Debug)]
pub(crate) struct Connections<E: Executor, S> {
    entries: Slab<(u64, Connection<E, S>)>,
    entries_max: usize,
    births: u64,
}

impl<E: Executor, S> Default for Connections<E, S> {
    fn default() -> Self {
        Connections { entries: Slab::new(), entries_max: 0, births: 0 }
    }
}

impl<E: Executor, S: Stream> Connections<E, S> {
    pub(crate) fn insert(&mut self, connection: Connection<E, S>) -> u64 {
        let entry = self.entries.vacant_entry();
        self.entries_max = self.entries_max.max(entry.key() + 1);
        // There are fewer than 2^32 descriptors, so the index always fits.
        let token = self.births << 32 | entry.key() as u64;
        self.births = (self.births + 1) & BIRTH_MASK;
        entry.insert((token, connection));
        token
    }

    #[inline]
    pub(crate) fn get(&mut self, token: u64) -> Option<&mut Connection<E, S>> {
        let (own, connection) = self.entries.get_mut(index(token))?;
        if *own == token || is(Fault::TokenNotCompared) { Some(connection) } else { None }
    }

    pub(crate) fn remove(&mut self, token: u64) -> Option<Connection<E, S>> {
        self.get(token)?;
        self.entries.try_remove(index(token)).map(|(_, connection)| connection)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the largest number of entries ever used at once, and the bytes of allocated entries.
    pub(crate) fn entries(&self) -> (usize, usize) {
        (self.entries_max, self.entries.capacity() * size_of::<Option<(u64, Connection<E, S>)>>())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection<E, S>> {
        self.entries.iter_mut().map(|(_, (_, connection))| connection)
    }

    /// Returns the connections in the entries from index `entry` on, each with its entry's index.
    pub(crate) fn from(&self, entry: usize) -> impl Iterator<Item = (usize, &Connection<E, S>)> {
        let found = |entry: usize| self.entries.get(entry).map(|(_, it)| (entry, it));
        (entry..self.entries_max).filter_map(found)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Connection<E, S>)> {
        self.entries.iter().map(|(_, (token, connection))| (*token, connection))
    }
}

fn index(token: u64) -> usize {
    let [a, b, c, d, ..] = token.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storeless::Storeless;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn connection() -> Connection<Storeless, net::Stream> {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        Connection::new(
            net::Stream::from(OwnedFd::from(ours)),
            protocol::ProtocolMode::Auto,
            (0, 0),
        )
    }

    #[test]
    fn a_token_finds_its_connection_and_no_other() {
        let mut connections = Connections::default();
        let tokens: Vec<u64> = (0..3).map(|_| connections.insert(connection())).collect();
        assert!(
            tokens.iter().all(|&token| token < TOKEN_OTHER && connections.get(token).is_some())
        );
        assert!(connections.remove(tokens[1]).is_some());
        assert!(connections.remove(tokens[1]).is_none());
        let again = connections.insert(connection());
        assert_ne!(again, tokens[1]);
        assert!(connections.get(tokens[1]).is_none());
        assert!(connections.get(again).is_some());
        let mut all: Vec<u64> = connections.iter().map(|(token, _)| token).collect();
        all.sort_unstable();
        let mut expected = vec![tokens[0], tokens[2], again];
        expected.sort_unstable();
        assert_eq!(all, expected);
        assert_eq!(connections.entries().0, 3);
    }
}
