//! A column's connections, found by their tokens.
//!
//! Where: an event carries a connection's token, and this finds the connection.
//! Invariant: a token never names a second connection: an entry that is used again gets another
//! generation, so the token of a closed connection finds nothing.

use crate::connection::Connection;

/// The bits of a generation, which wraps around: with its top bit clear, every connection's token
/// is below `TOKEN_OTHER`.
const GENERATION_MASK: u32 = 0x7fff_ffff;

/// The first token that names no connection.
pub(crate) const TOKEN_OTHER: u64 = 1 << 63;

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// Connections by token.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slab {
    /// Adds a connection and returns its token.
    pub(crate) fn insert(&mut self, connection: Connection) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // There are fewer than 2^32 descriptors, so the number always fits.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        token(slot.generation, index)
    }

    /// The connection of `token`, unless it was removed.
    #[inline]
    pub(crate) fn get(&mut self, token: u64) -> Option<&mut Connection> {
        let (generation, index) = parts(token);
        let slot = self.slots.get_mut(index)?;
        if slot.generation == generation { slot.connection.as_mut() } else { None }
    }

    /// Removes and returns the connection of `token`.
    pub(crate) fn remove(&mut self, token: u64) -> Option<Connection> {
        let (generation, index) = parts(token);
        let slot = self.slots.get_mut(index)?;
        if slot.generation != generation {
            return None;
        }
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(u32::try_from(index).unwrap_or(u32::MAX));
        Some(connection)
    }

    /// The number of entries, in use or not, and their bytes.
    pub(crate) fn entries(&self) -> (usize, usize) {
        let bytes = self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * 4;
        (self.slots.len(), bytes)
    }

    /// All connections with their tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Connection)> {
        (0_u32..).zip(&self.slots).filter_map(|(index, slot)| {
            slot.connection.as_ref().map(|connection| (token(slot.generation, index), connection))
        })
    }
}

fn token(generation: u32, index: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

fn parts(token: u64) -> (u32, usize) {
    let [a, b, c, d, e, f, g, h] = token.to_le_bytes();
    (u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn connection() -> Connection {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        Connection::new(net::Stream::from(OwnedFd::from(ours)), protocol::Speak::Auto, (0, 0))
    }

    #[test]
    fn a_token_finds_its_connection_and_no_other() {
        let mut slab = Slab::default();
        let tokens: Vec<u64> = (0..3).map(|_| slab.insert(connection())).collect();
        assert!(tokens.iter().all(|&token| token < TOKEN_OTHER && slab.get(token).is_some()));
        assert!(slab.remove(tokens[1]).is_some());
        assert!(slab.remove(tokens[1]).is_none());
        let again = slab.insert(connection());
        assert_ne!(again, tokens[1]);
        assert!(slab.get(tokens[1]).is_none());
        assert!(slab.get(again).is_some());
        let mut all: Vec<u64> = slab.iter().map(|(token, _)| token).collect();
        all.sort_unstable();
        let mut expected = vec![tokens[0], tokens[2], again];
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
}
