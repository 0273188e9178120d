//! A draft: a large value that is not linked yet, in frames that are filled as its bytes arrive. A
//! value for the arena is copied into chunks as a whole, or stays in the chunks that received it.
//!
//! Where: between the connection that receives a body and the put that publishes it.
//! Invariant: frames are taken as bytes arrive, not for the length that a peer declares; unfilled
//! frames are given back at once. Values that are arriving hold at most
//! `Store::in_flight_bytes_max` bytes. Dropping a draft gives its frames back.

#![allow(unsafe_code, reason = "frames in the mapping")]

use arrayvec::ArrayVec;

use crate::column::Column;
use crate::engine::NewValue;
use crate::handle::{Handle, View};
use crate::room::Room;
use crate::verbs::StoreError;
use memory::arena::{KeptBytes, VALUE_AT};
use memory::frames::{Memory, Pinned};
use memory::plant::{self, Fault};
use memory::segments::NONE;
use memory::sync::plain_access;
use std::sync::Arc;

/// The maximum number of pieces that one call of `Draft::spaces` returns.
pub const SPACES_MAX: usize = 32;

/// A value that is not linked yet. Dropping it gives its frames back.
#[derive(Debug)]
pub struct Draft {
    memory: Arc<Memory>,
    value_bytes: u32,
    received_bytes: u32,
    /// The frames taken form a chain from `first` to `last`; `last` is being filled.
    first: Option<u32>,
    before_last: Option<u32>,
    last: Option<u32>,
    /// Frames taken by `spaces` for the next bytes. `filled` chains or releases them.
    ahead: ArrayVec<u32, SPACES_MAX>,
    /// The last frame, which `parts` took off the chain because it is not full.
    rest: Option<u32>,
    frames: u32,
    /// True if the value comes from a peer, and so counts as arriving.
    arrives: bool,
    /// A copy of the whole value, made by `copied` in place of the frames.
    copied: Option<Vec<u8>>,
}

impl Column {
    /// Makes a draft of `value_bytes` bytes. Frames are taken only as bytes arrive.
    #[must_use]
    pub fn draft(&mut self, value_bytes: u32) -> Draft {
        Draft::new(Arc::clone(self.handle.store.memory()), value_bytes)
    }

    /// True if values of this length stay in the chunks of the arena in which they were received.
    #[must_use]
    pub fn keeps(&self, value_bytes: usize) -> bool {
        let view = self.handle.view();
        value_bytes > view.log_bytes_max as usize
            && view.memory().arena().is_some_and(|it| it.keeps())
    }

    /// Makes a complete draft of a value that stays in the pieces of the arena into which it came.
    ///
    /// # Panics
    /// The pieces' lengths do not add up to `value_bytes`.
    #[must_use]
    pub fn draft_of(&self, value_bytes: u32, pieces: impl IntoIterator<Item = KeptBytes>) -> Draft {
        let view = self.handle.view();
        view.counters().arena_kept_bytes.add(value_bytes.into());
        Draft::of_kept(view.memory(), value_bytes, pieces)
    }
}

impl Draft {
    fn new(memory: Arc<Memory>, value_bytes: u32) -> Self {
        Self {
            memory,
            value_bytes,
            received_bytes: 0,
            first: None,
            before_last: None,
            last: None,
            ahead: ArrayVec::new(),
            rest: None,
            frames: 0,
            arrives: true,
            copied: None,
        }
    }

    fn of_kept(
        memory: &Arc<Memory>,
        value_bytes: u32,
        pieces: impl IntoIterator<Item = KeptBytes>,
    ) -> Self {
        let mut draft = Self::new(Arc::clone(memory), value_bytes);
        draft.arrives = false;
        for piece in pieces {
            draft.received_bytes += u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let chunk = memory.frame_of(piece);
            draft.chain_chunk(chunk);
        }
        assert_eq!(draft.missing_bytes(), 0, "the pieces must have the value's length");
        draft
    }

    fn chain_chunk(&mut self, chunk: u32) {
        match self.last.replace(chunk) {
            Some(last) => self.memory.chain(last, chunk),
            None => self.first = Some(chunk),
        }
    }

    /// Makes a complete draft of a value received in one piece of the arena, where it stays.
    /// `None`: values of this length do not belong in the arena, or the arena cannot keep this
    /// value.
    pub(crate) fn in_place(view: View<'_>, value: &[u8]) -> Option<Self> {
        let memory = view.memory();
        let arena = memory.arena().filter(|_| value.len() > view.log_bytes_max as usize)?;
        let value_bytes = u32::try_from(value.len()).ok()?;
        let kept = arena.keep(value)?;
        view.counters().arena_kept_bytes.add(value_bytes.into());
        Some(Self::of_kept(memory, value_bytes, [kept]))
    }

    /// Makes a complete draft that copies these pieces into chunks of the arena. `None`: values of
    /// this length do not belong in the arena, or too few chunks are free. No item is evicted.
    pub(crate) fn in_chunks(view: View<'_>, pieces: &[&[u8]]) -> Option<Self> {
        let memory = view.memory();
        let mut lacking = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let chunk_bytes =
            memory.arena().filter(|_| lacking > view.log_bytes_max as usize)?.chunk_bytes();
        let room_max = chunk_bytes - VALUE_AT;
        let mut draft = Self::new(Arc::clone(memory), u32::try_from(lacking).ok()?);
        (draft.received_bytes, draft.arrives) = (draft.value_bytes, false);
        let (mut at, mut room) = (std::ptr::null_mut(), 0);
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                if room == 0 {
                    room = lacking.min(room_max);
                    let Some((chunk, beginning)) = memory.take_chunk(room) else {
                        view.counters().arena_full.add(1);
                        return None;
                    };
                    draft.chain_chunk(chunk);
                    at = beginning;
                }
                let bytes = room.min(piece.len());
                plain_access(at, bytes, true);
                // SAFETY: the chunk is this draft's alone until the draft is published, and has
                // `room` bytes from `at` on; no slice of these bytes exists.
                unsafe {
                    at.copy_from_nonoverlapping(piece.as_ptr(), bytes);
                    at = at.add(bytes);
                }
                (room, lacking, piece) = (room - bytes, lacking - bytes, &piece[bytes..]);
            }
        }
        view.counters().arena_copied_bytes.add(draft.value_bytes.into());
        Some(draft)
    }

    /// Makes a draft that copies these pieces into frames.
    ///
    /// # Errors
    /// Like `space`, and `StoreError::TooLarge` for too many bytes. On an error no frame is kept.
    pub(crate) fn in_frames(
        handle: &mut Handle,
        room: &mut Room,
        pieces: &[&[u8]],
    ) -> Result<Self, StoreError> {
        let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let value_bytes = u32::try_from(bytes).map_err(|_| StoreError::TooLarge)?;
        let mut draft = Self::new(Arc::clone(handle.store.memory()), value_bytes);
        draft.arrives = false;
        for piece in pieces {
            let mut piece = *piece;
            while !piece.is_empty() {
                let space = draft.space_for(handle, room)?;
                let bytes = space.len().min(piece.len());
                space[..bytes].copy_from_slice(&piece[..bytes]);
                draft.filled(bytes);
                piece = &piece[bytes..];
            }
        }
        Ok(draft)
    }

    /// The free space to fill next, no longer than the value's missing bytes; empty once the value
    /// is complete. May make room, and is a quiescent point of the column.
    ///
    /// # Errors
    /// `StoreError::NoMemory`: the value cannot be finished; drop the draft and discard the bytes
    /// that are still to arrive. `StoreError::Later`: call again after a quiescent point.
    pub fn space(&mut self, column: &mut Column) -> Result<&mut [u8], StoreError> {
        self.space_for(&mut column.handle, &mut column.room)
    }

    fn space_for(&mut self, handle: &mut Handle, room: &mut Room) -> Result<&mut [u8], StoreError> {
        self.lengthen(handle, room)?;
        Ok(self.free_pieces().next().unwrap_or_default())
    }

    /// Returns the piece that `space` returns, and then further pieces of at most `bytes_max` bytes
    /// in all, or fewer if frames run out. The caller must call `filled` afterwards.
    ///
    /// # Errors
    /// Like `space`.
    pub fn spaces(
        &mut self,
        column: &mut Column,
        bytes_max: usize,
    ) -> Result<impl Iterator<Item = &mut [u8]>, StoreError> {
        let (handle, room) = (&mut column.handle, &mut column.room);
        self.lengthen(handle, room)?;
        let frame_bytes = self.memory.frames.frame_bytes();
        let lacking = (self.value_bytes.div_ceil(frame_bytes) - self.frames) as usize;
        let wanted = lacking.min(bytes_max / frame_bytes as usize).min(SPACES_MAX - 1);
        while self.ahead.len() < wanted
            && let Ok(frame) = self.take_frame(handle, room)
        {
            self.ahead.push(frame);
        }
        Ok(self.free_pieces())
    }

    /// The free space of the chain's last frame and of the frames in `ahead`.
    fn free_pieces(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let frame_bytes = self.memory.frames.frame_bytes();
        let begun = self.frames * frame_bytes - self.received_bytes;
        let (memory, mut missing) = (&self.memory, self.value_bytes - self.received_bytes);
        let last = self.last.filter(|_| begun > 0).map(|last| (last, begun));
        last.into_iter().chain(self.ahead.iter().map(move |&frame| (frame, frame_bytes))).map(
            move |(frame, free)| {
                let bytes = missing.min(free);
                missing -= bytes;
                // SAFETY: the frame is this draft's alone until the draft is published. While the
                // draft is borrowed, the frame is given out once. The `bytes` bytes from
                // `frame_bytes - free` on lie within it. The region is mapped, and zero where it
                // was never written.
                unsafe {
                    let at = memory.frame_at(frame).add((frame_bytes - free) as usize);
                    std::slice::from_raw_parts_mut(at, bytes as usize)
                }
            },
        )
    }

    fn lengthen(&mut self, handle: &mut Handle, room: &mut Room) -> Result<(), StoreError> {
        let chained_bytes = self.frames * self.memory.frames.frame_bytes();
        if self.missing_bytes() > 0 && self.received_bytes == chained_bytes {
            let frame = self.take_frame(handle, room)?;
            self.chain(frame);
        }
        Ok(())
    }

    fn take_frame(&self, handle: &mut Handle, room: &mut Room) -> Result<u32, StoreError> {
        let frames = &self.memory.frames;
        let frame_bytes = frames.frame_bytes() as usize;
        if self.arrives
            && frames.in_flight_bytes() + frame_bytes > handle.store.in_flight_bytes_max()
        {
            return Err(StoreError::NoMemory);
        }
        let frame = room.frame(handle)?;
        frames.count_in_flight(true, 1);
        Ok(frame)
    }

    fn chain(&mut self, frame: u32) {
        self.frames += 1;
        match self.last {
            Some(last) => self.memory.chain(last, frame),
            None => self.first = Some(frame),
        }
        self.before_last = self.last;
        self.last = Some(frame);
    }

    /// Reports that the first `bytes` bytes of `space` or `spaces` have been written.
    ///
    /// # Panics
    /// `bytes` exceeds that space.
    pub fn filled(&mut self, bytes: usize) {
        let missing = self.missing_bytes();
        assert!(bytes <= missing, "more bytes than the value has");
        self.received_bytes += u32::try_from(bytes).unwrap_or(0);
        let frame_bytes = self.memory.frames.frame_bytes();
        let mut unused = std::mem::take(&mut self.ahead);
        let reached = self.received_bytes.div_ceil(frame_bytes).saturating_sub(self.frames);
        assert!(reached as usize <= unused.len(), "more bytes than there was space for");
        for frame in unused.drain(..reached as usize) {
            self.chain(frame);
        }
        self.give_back_unused(&unused);
    }

    fn give_back_unused(&self, frames: &[u32]) {
        for &frame in frames {
            self.memory.release(frame);
            self.memory.frames.count_in_flight(false, 1);
        }
    }

    /// Number of bytes of the value that have not arrived.
    #[must_use]
    pub fn missing_bytes(&self) -> usize {
        (self.value_bytes - self.received_bytes) as usize
    }

    /// The length of the value.
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        self.value_bytes
    }

    /// The complete value, for the item that will name the value's frames.
    ///
    /// # Panics
    /// Bytes are missing.
    pub(crate) fn value(&mut self) -> NewValue<'_> {
        let value_bytes = self.value_bytes;
        match self.parts() {
            (Some(first), rest) => NewValue::Frames(first, rest, value_bytes),
            (None, rest) => NewValue::Bytes(rest),
        }
    }

    /// Returns the complete value's first full frame, and the bytes after the full frames, which go
    /// to the log: their frame is taken off the chain. A value in chunks stays in its chunks.
    fn parts(&mut self) -> (Option<u32>, &[u8]) {
        assert_eq!(self.missing_bytes(), 0, "only a complete draft is published");
        let rest_bytes = match self.frames {
            0 => 0,
            _ => (self.value_bytes % self.memory.frames.frame_bytes()) as usize,
        };
        if rest_bytes != 0 && self.rest.is_none() {
            match self.before_last {
                Some(_) if plant::is(Fault::RestChained) => {}
                Some(before) => self.memory.chain(before, NONE),
                None => self.first = None,
            }
            self.rest = self.last;
        }
        let rest: &[u8] = match self.rest {
            // SAFETY: the draft owns the frame and has filled `rest_bytes` of it. The draft does
            // not write to the frame again, since no byte is missing. Only `give_back` gives the
            // frame back; it takes the draft mutably, and the slice borrows the draft.
            Some(frame) => unsafe {
                std::slice::from_raw_parts(self.memory.frame_at(frame), rest_bytes)
            },
            None => &[],
        };
        (self.first, rest)
    }

    /// The whole value in one piece, for `extend`. The first call copies the value and gives its
    /// frames back, since the extended value needs frames. The copy still counts as arriving.
    pub(crate) fn copied(&mut self) -> &[u8] {
        if self.copied.is_none() {
            let (memory, value_bytes) = (Arc::clone(&self.memory), self.value_bytes as usize);
            let (first, rest) = self.parts();
            // SAFETY: the draft owns the frames and has filled them with this many bytes.
            let hold = |first| unsafe { Pinned::hold(&memory, first, value_bytes - rest.len()) };
            let pinned = first.and_then(hold);
            let mut pieces: Vec<&[u8]> = pinned.iter().flat_map(Pinned::pieces).collect();
            pieces.push(rest);
            self.copied = Some(pieces.concat());
            self.give_back();
        }
        self.copied.as_deref().unwrap_or(&[])
    }

    /// Bytes that the draft holds outside of the store's memory.
    #[must_use]
    pub fn copied_bytes(&self) -> usize {
        self.copied.as_ref().map_or(0, Vec::capacity)
    }

    pub(crate) fn is_copied(&self) -> bool {
        self.copied.is_some()
    }

    fn give_back(&mut self) {
        for frame in [self.first.take(), self.rest.take()].into_iter().flatten() {
            self.memory.release(frame);
        }
    }

    /// Leaves the frames to the item, which is linked now and names the frames.
    pub(crate) fn published(&mut self) {
        self.first = None;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.give_back();
        self.give_back_unused(&self.ahead);
        if !plant::is(Fault::InFlightKept) {
            self.memory.frames.count_in_flight(false, self.frames);
        }
    }
}
