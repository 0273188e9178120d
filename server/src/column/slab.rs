//! A column's connections.
//!
//! Where: events carry a connection's token; this finds it.
//! Invariant: a token names one connection for ever: a slot that is used again gets another
//! generation, so what was meant for a connection that has gone finds nothing.

use crate::connection::Connection;

/// Generations go round after this many; well clear of `TOKEN_OTHER`.
const GENERATION_MASK: u32 = 0x7fff_ffff;

/// Tokens from here on are no connections.
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
    /// Takes a connection in; its token.
    pub(crate) fn insert(&mut self, connection: Connection) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // More than 2^32 descriptors do not exist.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        token(slot.generation, index)
    }

    /// The connection of `token`, if it is still here.
    #[inline]
    pub(crate) fn get(&mut self, token: u64) -> Option<&mut Connection> {
        let (generation, index) = parts(token);
        let slot = self.slots.get_mut(index)?;
        if slot.generation == generation { slot.connection.as_mut() } else { None }
    }

    /// Takes the connection of `token` out.
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
