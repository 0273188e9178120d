//! A draft: a large value that no item names yet. Its frames are filled as its bytes arrive. A
//! value for the arena is copied into chunks as a whole, or stays in the chunks that received it.
//!
//! Where: a connection fills a draft with a request's bytes; a put stores the draft as a value.
//! Invariant: a draft takes frames as bytes arrive, whatever length a peer declares, and gives
//! unfilled frames back at once. The frames of all arriving values have at most
//! `Shared::in_flight_bytes_max` bytes in total. Dropping a draft gives its frames back.

#![allow(unsafe_code, reason = "frames in the mapping")]

use arrayvec::ArrayVec;

use crate::column::Column;
use crate::column::handle::{Handle, View};
use crate::engine::NewValue;
use crate::error::StoreError;
use crate::room::Room;
use memory::arena::{KeptBytes, VALUE_AT};
use memory::frames::{Memory, Pinned};
use memory::plant::{self, Fault};
use memory::segments::NONE;
use memory::sync::plain_access;
use std::sync::Arc;

/// Maximum number of pieces of memory that one call of `Draft::spaces` returns.
pub const SPACES_MAX: usize = 32;

/// A large value that no item names yet. Dropping the draft gives the value's frames back.
#[derive(Debug)]
pub struct Draft {
    memory: Arc<Memory>,
    value_bytes: u32,
    received_bytes: u32,
    /// The first frame of the draft's chain, which ends at `last`, the frame that is being filled.
    first: Option<u32>,
    before_last: Option<u32>,
    last: Option<u32>,
    /// Frames that `spaces` has taken for the next bytes. `filled` chains or releases these frames.
    ahead: ArrayVec<u32, SPACES_MAX>,
    /// The last frame, if `parts` took the frame off the chain because the frame is not full.
    rest: Option<u32>,
    frames: u32,
    /// True if a peer sends the value: then `Shared::in_flight_bytes_max` limits its frames.
    arrives: bool,
    /// A copy of the whole value. `copied` makes the copy and gives the frames back.
    copied: Option<Vec<u8>>,
}

impl Column {
    /// Makes a draft of `value_bytes` bytes. The draft takes frames only when bytes arrive.
    #[must_use]
    pub fn draft(&mut self, value_bytes: u32) -> Draft {
        Draft::new(Arc::clone(self.handle.shared.memory()), value_bytes)
    }

    /// True if a value of this length stays in the chunks of the arena that received the value.
    #[must_use]
    pub fn keeps(&self, value_bytes: usize) -> bool {
        let view = self.handle.view();
        value_bytes > view.log_bytes_max as usize
            && view.memory().arena().is_some_and(|it| it.keeps())
    }

    /// Makes a complete draft of a value that the arena received in `pieces`, and that stays there.
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

    /// Makes a complete draft of a value that the arena received in one piece and now keeps.
    /// Returns `None` if the value is too short for the arena, or if the arena cannot keep the
    /// value.
    pub(crate) fn in_place(view: View<'_>, value: &[u8]) -> Option<Self> {
        let memory = view.memory();
        let arena = memory.arena().filter(|_| value.len() > view.log_bytes_max as usize)?;
        let value_bytes = u32::try_from(value.len()).ok()?;
        let kept = arena.keep(value)?;
        view.counters().arena_kept_bytes.add(value_bytes.into());
        Some(Self::of_kept(memory, value_bytes, [kept]))
    }

    /// Makes a complete draft by copying `pieces` into chunks of the arena, without evicting items.
    /// Returns `None` if the value is too short for the arena, or if too few chunks are free.
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
                // SAFETY: only this draft uses the chunk until the draft is published. The chunk
                // has `room` bytes from `at` on, and no slice of these bytes exists.
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

    /// Makes a complete draft by copying `pieces` into frames. On an error, gives all frames back.
    ///
    /// # Errors
    /// Like `space`, and `StoreError::TooLarge` if the length of `pieces` exceeds a `u32`.
    pub(crate) fn in_frames(
        handle: &mut Handle,
        room: &mut Room,
        pieces: &[&[u8]],
    ) -> Result<Self, StoreError> {
        let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let value_bytes = u32::try_from(bytes).map_err(|_| StoreError::TooLarge)?;
        let mut draft = Self::new(Arc::clone(handle.shared.memory()), value_bytes);
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

    /// Returns memory for the value's next missing bytes; the memory is empty once the value is
    /// complete. May evict items to take a frame, and may pass a quiescent point of the column.
    ///
    /// # Errors
    /// `StoreError::NoMemory`: no frame can be taken, so the caller must drop the draft and discard
    /// the value. `StoreError::Later`: the caller must call again after a quiescent point.
    pub fn space(&mut self, column: &mut Column) -> Result<&mut [u8], StoreError> {
        self.space_for(&mut column.handle, &mut column.room)
    }

    fn space_for(&mut self, handle: &mut Handle, room: &mut Room) -> Result<&mut [u8], StoreError> {
        self.lengthen(handle, room)?;
        Ok(self.free_pieces().next().unwrap_or_default())
    }

    /// Returns the memory that `space` returns, and then up to `bytes_max` bytes more, or fewer if
    /// frames run out. The caller must write to the memory and then call `filled`.
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

    fn free_pieces(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let frame_bytes = self.memory.frames.frame_bytes();
        let begun = self.frames * frame_bytes - self.received_bytes;
        let (memory, mut missing) = (&self.memory, self.value_bytes - self.received_bytes);
        let last = self.last.filter(|_| begun > 0).map(|last| (last, begun));
        last.into_iter().chain(self.ahead.iter().map(move |&frame| (frame, frame_bytes))).map(
            move |(frame, free)| {
                let bytes = missing.min(free);
                missing -= bytes;
                // SAFETY: only this draft uses the frame until the draft is published. While the
                // draft is borrowed, the iterator returns each byte once. The `bytes` bytes from
                // offset `frame_bytes - free` on lie within the frame. The region is mapped, and is
                // zero where nobody has written.
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
            && frames.in_flight_bytes() + frame_bytes > handle.shared.in_flight_bytes_max()
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

    /// Notes that the first `bytes` bytes of the memory from `space` or `spaces` have been written.
    ///
    /// # Panics
    /// `bytes` exceeds the length of that memory.
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

    /// Number of bytes of the value that have not arrived yet.
    #[must_use]
    pub fn missing_bytes(&self) -> usize {
        (self.value_bytes - self.received_bytes) as usize
    }

    /// The length of the value.
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        self.value_bytes
    }

    /// Returns the complete value, to be stored as an item's value.
    ///
    /// # Panics
    /// Bytes of the value are missing.
    pub(crate) fn value(&mut self) -> NewValue<'_> {
        let value_bytes = self.value_bytes;
        match self.parts() {
            (Some(first), rest) => NewValue::Frames(first, rest, value_bytes),
            (None, rest) => NewValue::Bytes(rest),
        }
    }

    /// Returns the value's first full frame, and the bytes after the full frames. These bytes go to
    /// the log, so their frame is taken off the chain. A value in chunks has no bytes for the log.
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
            // SAFETY: the draft owns the frame and has filled `rest_bytes` bytes of the frame. No
            // byte is missing, so the draft does not write to the frame again. Only `give_back`
            // gives the frame back; `give_back` needs the draft mutably, but the slice borrows the
            // draft.
            Some(frame) => unsafe {
                std::slice::from_raw_parts(self.memory.frame_at(frame), rest_bytes)
            },
            None => &[],
        };
        (self.first, rest)
    }

    /// Returns the whole value as one slice, for `extend`. The first call copies the value and
    /// gives its frames back for the extended value. The copied bytes still count as arriving.
    pub(crate) fn copied(&mut self) -> &[u8] {
        if self.copied.is_none() {
            let (memory, value_bytes) = (Arc::clone(&self.memory), self.value_bytes as usize);
            let (first, rest) = self.parts();
            // SAFETY: the draft owns the frames, and has filled all bytes for which `hold` asks.
            let hold = |first| unsafe { Pinned::hold(&memory, first, value_bytes - rest.len()) };
            let pinned = first.and_then(hold);
            let mut pieces: Vec<&[u8]> = pinned.iter().flat_map(Pinned::pieces).collect();
            pieces.push(rest);
            self.copied = Some(pieces.concat());
            self.give_back();
        }
        self.copied.as_deref().unwrap_or(&[])
    }

    /// Number of bytes of the copy that `copied` has made outside of the store's memory.
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

    /// Leaves the chained frames to the item that names the frames from now on.
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
