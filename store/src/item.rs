//! An item in the log, byte by byte.
//!
//! Where: a slot's `loc` is the position of an item's first byte; walks go from item to item.
//! Invariant: once an item is published, its key, shape and extent never change. Its exptime and
//! last access may change. In a short item, the CAS unique, client flags and value may change too
//! (see `rewrite`). Writers use atomics under the group's lock, and readers without the lock use
//! atomics.
//!
//! ```text
//!   form, lengths, options           2 to 4 bytes, little-endian, see `shape`
//!   [value bytes: u32]               if the form has no room for the length
//!   last access                      u16, see `stamp`
//!   [cas: u32 or u64]                unless the store keeps none: u32 is the distance from the
//!                                    segment's cas_base; CAS8: u64
//!   [exptime: u32]                   EXP
//!   [client flags: u32]              FLAGS
//!   [first frame: u32]               CHAINED: all of the value but its last part is in frames
//!   key    klen bytes
//!   value  the whole value, or its last part, after the full frames
//! ```
//! The slot holds all other state that memcached's commands need: fetched, stale and won.

#![allow(unsafe_code, reason = "reads and writes items in the mapping")]

mod around;
mod pieces;
mod shape;
pub(crate) mod stamp;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use shape::{CasWidth, EXP, FLAGS, KEY_BINARY, Layout, Shape};

use crate::index::Loc;
use crate::item::stamp::Stamp;
use crate::policy::room::REWRITTEN_BYTES_MAX;
use memory::frames::Memory;
use memory::region::Region;
use memory::sync::plain_access;
use pieces::{copy_in, copy_out, load_2, load_4, load_8};
use std::marker::PhantomData;

pub(crate) const KEY_BYTES_MAX: usize = 250;

/// A placeholder for an exptime that is set later. No clock reaches this second.
pub(crate) const EXPTIME_TO_COME: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: [&'a [u8]; 2],
    pub(crate) cas: u64,
    pub(crate) exptime: u32,
    pub(crate) client_flags: u32,
    pub(crate) first_frame: u32,
    pub(crate) accessed: Stamp,
}

/// A reference to an item in the log. Valid until the column's next quiescent point.
#[derive(Clone, Copy)]
pub(crate) struct Item<'r> {
    at: *const u8,
    shape: Shape,
    fields_at: u32,
    key_at: u32,
    region: PhantomData<&'r Region>,
}

pub(crate) enum Record<'r> {
    Item(Item<'r>),
    /// A void, which is a place that got no item. The number is the void's extent.
    Void(u32),
}

/// A walk through the records of a claimed segment. `at` is the offset of a record, or the end.
#[derive(Debug)]
pub(crate) struct Walk {
    segment: u32,
    at: u32,
    end: u32,
}

impl Walk {
    /// Begins a walk. The segment was drainable when the caller claimed it, and the caller keeps
    /// the claim while the walk goes on.
    pub(crate) fn begin(memory: &Memory, segment: u32) -> Self {
        Self { segment, at: 0, end: memory.segments.get(segment).end() }
    }

    pub(crate) fn segment(&self) -> u32 {
        self.segment
    }

    pub(crate) fn at(&self) -> u32 {
        self.at
    }

    /// The offset at which the segment's records end.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Returns the next record and its location, and steps over it. `None` at the end.
    #[inline]
    pub(crate) fn next<'r>(
        &mut self,
        region: &'r Region,
        layout: Layout,
    ) -> Option<(u64, Record<'r>)> {
        if self.at >= self.end {
            return None;
        }
        let loc = region.start(self.segment) + u64::from(self.at);
        // SAFETY: the segment was drainable when it was claimed, so records cover the segment up to
        // `end`, and `at` moves only here, from one record to the next.
        let record = unsafe { record(region, loc, layout) };
        self.at += match &record {
            Record::Void(extent) => *extent,
            Record::Item(item) => item.extent(),
        };
        Some((loc, record))
    }
}

impl<'r> Item<'r> {
    /// The item at `loc`.
    #[inline]
    pub(crate) fn at(region: &'r Region, loc: Loc<'r>, layout: Layout) -> Self {
        let at = region.at(loc.offset()).cast_const();
        plain_access(at, 4, false);
        // SAFETY: an item was written at `loc` before a slot named the item, and the item's bytes
        // are not reused during `'r` (see `Loc`).
        Self::of(at, unsafe { shape::read(at, layout) })
    }

    #[inline(always)]
    fn of(
        at: *const u8,
        shape::DecodedPrefix { shape, fields_at, key_at }: shape::DecodedPrefix,
    ) -> Self {
        Self { at, shape, fields_at, key_at, region: PhantomData }
    }

    /// Like `at`, but returns `None` if the item has the long form, which is rare.
    #[inline(always)]
    pub(crate) fn shorter_at(region: &'r Region, loc: Loc<'r>, layout: Layout) -> Option<Self> {
        let at = region.at(loc.offset()).cast_const();
        plain_access(at, 4, false);
        // SAFETY: as in `at`: an item was written here, and its bytes are not reused meanwhile.
        Some(Self::of(at, unsafe { shape::read_shorter(at, layout) }?))
    }

    #[inline(always)]
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        plain_access(self.key().as_ptr(), key.len(), false);
        is_same(self.key(), key)
    }

    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    #[inline]
    pub(crate) fn extent(&self) -> u32 {
        self.key_at + self.shape.key_bytes + self.shape.log_bytes
    }

    #[inline]
    pub(crate) fn all_bytes(&self) -> u64 {
        u64::from(self.extent()) + u64::from(self.shape.value_bytes - self.shape.log_bytes)
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> (u32, u32) {
        (self.shape.value_bytes, self.shape.log_bytes)
    }

    #[inline]
    pub(crate) fn key(&self) -> &'r [u8] {
        // SAFETY: the key lies within the item's extent and is never rewritten.
        unsafe { self.bytes(self.key_at, self.shape.key_bytes) }
    }

    /// The part of the value that is in the log.
    ///
    /// # Safety
    /// Nobody rewrites the item while the returned bytes are in use: the caller holds the lock of
    /// the item's group, or the item is not short (`Shape::is_short`).
    #[inline]
    pub(crate) unsafe fn log_value(&self) -> &'r [u8] {
        // SAFETY: the value lies within the item's extent, and the caller keeps writers out.
        unsafe { self.bytes(self.key_at + self.shape.key_bytes, self.shape.log_bytes) }
    }

    /// Like `log_value`, but returns `None` if the item may be rewritten.
    #[inline]
    pub(crate) fn lasting_value(&self) -> Option<&'r [u8]> {
        // SAFETY: `rewrite` refuses an item that is not short.
        (!self.shape.is_short()).then(|| unsafe { self.log_value() })
    }

    /// The item's `bytes` bytes from offset `from` on.
    ///
    /// # Safety
    /// The bytes lie within the item's extent, and do not change while the slice is in use.
    #[inline]
    unsafe fn bytes(&self, from: u32, bytes: u32) -> &'r [u8] {
        // SAFETY: the item was written in full before it was published, and its bytes are not
        // reused while the item is borrowed (see `at`). The caller guarantees the other conditions.
        unsafe { std::slice::from_raw_parts(self.at.add(from as usize), bytes as usize) }
    }

    #[inline]
    pub(crate) fn first_frame(&self) -> Option<u32> {
        self.shape.is_chained().then(|| {
            let mut bytes = [0; 4];
            // SAFETY: if an item has frames, the four bytes before its key are the number of its
            // first frame, which is never rewritten.
            bytes.copy_from_slice(unsafe { self.bytes(self.key_at - 4, 4) });
            u32::from_le_bytes(bytes)
        })
    }

    #[inline]
    fn exp_at(&self) -> u32 {
        self.fields_at
            + match self.shape.cas() {
                CasWidth::None => 0,
                CasWidth::Short => 4,
                CasWidth::Long => 8,
            }
    }

    #[inline]
    fn flags_at(&self) -> u32 {
        self.exp_at() + if self.shape.has_exp() { 4 } else { 0 }
    }

    #[inline]
    pub(crate) fn client_flags(&self) -> u32 {
        match self.shape.has_flags() {
            // SAFETY: the item has client flags.
            true => unsafe { self.load_4(self.flags_at()) },
            false => 0,
        }
    }

    /// The CAS unique; 0 if the item has none. `base` returns the `cas_base` of the item's segment.
    #[inline(always)]
    pub(crate) fn cas(&self, base: impl FnOnce() -> u64) -> u64 {
        match self.shape.cas() {
            CasWidth::None => 0,
            // SAFETY: the item has a CAS unique of four bytes.
            CasWidth::Short => base() + u64::from(unsafe { self.load_4(self.fields_at) }),
            // SAFETY: the item has a CAS unique of eight bytes; see also `load_4`.
            CasWidth::Long => unsafe { load_8(self.at.add(self.fields_at as usize)) },
        }
    }

    /// The exptime; 0 if the item never expires. During a touch, the result may mix old and new
    /// bytes, so an exptime that has passed must be read again under the group's lock.
    #[inline]
    pub(crate) fn exptime(&self) -> u32 {
        if !self.shape.has_exp() {
            return 0;
        }
        // SAFETY: the item has an exptime field.
        match unsafe { self.load_4(self.exp_at()) } {
            EXPTIME_TO_COME => 0,
            exptime => exptime,
        }
    }

    /// Sets the exptime, under the group's lock, since two calls at once may mix their bytes.
    ///
    /// # Panics
    /// The item has no exptime field, so the bytes would overwrite another field or the key.
    // Inlined: after a caller's check of the shape, the assertion takes no time.
    #[inline(always)]
    pub(crate) fn set_exptime(&self, exptime: u32) {
        assert!(self.shape.has_exp(), "an item that has room for an exptime");
        // SAFETY: the item has an exptime field.
        unsafe { self.store(self.exp_at(), exptime.to_le_bytes()) };
    }

    #[inline]
    pub(crate) fn accessed(&self) -> Stamp {
        // SAFETY: every item has a stamp, in the two bytes before its fields; see also `load_4`.
        Stamp(unsafe { load_2(self.at.add(self.fields_at as usize - 2)) })
    }

    /// Sets the stamp of the last access. Must be called under the lock of the item's group.
    #[inline]
    pub(crate) fn set_accessed(&self, stamp: Stamp) {
        // SAFETY: every item has a stamp, in the two bytes before its fields.
        unsafe { self.store(self.fields_at - 2, stamp.0.to_le_bytes()) };
    }

    /// # Safety
    /// A four-byte field of the item's shape begins at byte `from`.
    #[inline]
    unsafe fn load_4(&self, from: u32) -> u32 {
        // SAFETY: the field lies within the item's extent, which is mapped and not reused while the
        // item is borrowed (see `at`). After the item is published, columns access its fields only
        // by the atomics of `pieces`, one field at a time.
        unsafe { load_4(self.at.add(from as usize)) }
    }

    /// # Safety
    /// A field of `N` bytes begins at byte `from`. The field is the stamp or a field of the item's
    /// shape, but not the first frame's number, which readers load without atomics.
    #[inline]
    unsafe fn store<const N: usize>(&self, from: u32, bytes: [u8; N]) {
        // SAFETY: the field lies within the item's extent, as in `load_4`; the mapping is writable.
        unsafe { copy_in(bytes.as_ptr(), self.at.add(from as usize).cast_mut(), N) };
    }

    /// Copies the part of the value that is in the log to `to`, which must have the same length.
    /// Another column may rewrite the value meanwhile: the caller must check the slot afterwards.
    #[inline]
    pub(crate) fn copy_value(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.shape.log_bytes as usize, "all of it");
        // SAFETY: the value's bytes were written before the item was published. Since then only
        // `rewrite` stores to these bytes, by `copy_in`, which cuts the bytes into the same pieces.
        // `to` is as long as the value's part. The fence in the caller's check orders the accesses.
        unsafe { copy_out(self.value_at(), to.as_mut_ptr(), to.len()) };
    }

    /// Like `copy_value`, but appends the bytes to `out`.
    #[inline(always)]
    pub(crate) fn append_value(&self, out: &mut Vec<u8>) {
        let bytes = self.shape.log_bytes as usize;
        out.reserve(bytes);
        // SAFETY: as in `copy_value`; there is room for `bytes` bytes after the end of `out`, and
        // these bytes are written before the length of `out` includes them.
        unsafe {
            copy_out(self.value_at(), out.as_mut_ptr().add(out.len()), bytes);
            out.set_len(out.len() + bytes);
        }
    }

    /// Overwrites the item's value and fields. A short CAS unique is stored as its distance from
    /// `cas_base`.
    ///
    /// # Panics
    /// The new value has another length, or the item is not short (`Shape::is_short`).
    ///
    /// # Safety
    /// The caller holds the lock of the item's group.
    #[inline(always)]
    pub(crate) unsafe fn rewrite(&self, fields: &Fields<'_>, cas_base: u64) {
        self.set_accessed(fields.accessed);
        match self.shape.cas() {
            CasWidth::None => {}
            CasWidth::Short => {
                let behind = fields.cas.wrapping_sub(cas_base).to_le_bytes();
                // SAFETY: the item has a CAS unique of four bytes.
                unsafe {
                    self.store(self.fields_at, [behind[0], behind[1], behind[2], behind[3]]);
                }
            }
            // SAFETY: the item has a CAS unique of eight bytes.
            CasWidth::Long => unsafe { self.store(self.fields_at, fields.cas.to_le_bytes()) },
        }
        if self.shape.has_exp() {
            self.set_exptime(fields.exptime);
        }
        if self.shape.has_flags() {
            // SAFETY: the item has client flags.
            unsafe { self.store(self.flags_at(), fields.client_flags.to_le_bytes()) };
        }
        let [value, more] = fields.value;
        let is_its_own = more.is_empty() && value.as_ptr() == self.value_at();
        if is_its_own {
            return;
        }
        assert!(
            value.len() + more.len() == self.shape.log_bytes as usize && self.shape.is_short(),
            "a value of the old one's length, which readers copy"
        );
        let to = self.value_at().cast_mut();
        // SAFETY: as in `copy_value`. The mapping is writable. The caller holds the group's lock,
        // which keeps out other writers, and readers that use no atomics.
        unsafe {
            match more.is_empty() {
                true => copy_in(value.as_ptr(), to, value.len()),
                false => copy_pieces_in([value, more], to),
            }
        }
    }

    #[inline]
    fn value_at(&self) -> *const u8 {
        self.at.wrapping_add((self.key_at + self.shape.key_bytes) as usize)
    }

    /// Returns all fields of the item except the CAS unique, which is 0 in the result.
    ///
    /// # Safety
    /// See `log_value`.
    pub(crate) unsafe fn fields(&self) -> Fields<'r> {
        Fields {
            key: self.key(),
            // SAFETY: the caller guarantees what `log_value` requires.
            value: [unsafe { self.log_value() }, &[]],
            cas: 0,
            exptime: self.exptime(),
            client_flags: self.client_flags(),
            first_frame: self.first_frame().unwrap_or(0),
            accessed: self.accessed(),
        }
    }
}

/// Copies both pieces to `to` by one call of `copy_in`. A reader may copy the whole value at the
/// same time, and its atomic accesses must have the same addresses and sizes as these.
///
/// # Safety
/// The same as for `copy_in`, for the bytes of both pieces.
#[inline(never)]
unsafe fn copy_pieces_in([value, more]: [&[u8]; 2], to: *mut u8) {
    let mut both = [0; REWRITTEN_BYTES_MAX];
    let both = &mut both[..value.len() + more.len()];
    both[..value.len()].copy_from_slice(value);
    both[value.len()..].copy_from_slice(more);
    // SAFETY: the caller guarantees what `copy_in` requires.
    unsafe { copy_in(both.as_ptr(), to, both.len()) };
}

/// True if two keys are the same. For most lengths, a call of `memcmp` alone would take as long. No
/// branch comes before the comparison of all bytes, since keys with equal tags nearly always match.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    /// The bits in which the keys' words at offset `at` differ.
    ///
    /// # Safety
    /// Both keys have all bytes of a `W` from offset `at` on.
    #[inline(always)]
    unsafe fn differ<W: std::ops::BitXor>(one: &[u8], other: &[u8], at: usize) -> W::Output {
        // SAFETY: the caller guarantees that all bytes of the word lie within both keys.
        let word = |of: &[u8]| unsafe { of.as_ptr().add(at).cast::<W>().read_unaligned() };
        word(one) ^ word(other)
    }
    let bytes = one.len();
    if bytes != other.len() {
        return false;
    }
    // SAFETY: both keys have `bytes` bytes, so the words at these offsets lie within both keys.
    unsafe {
        let at_ends = || differ::<u128>(one, other, 0) | differ::<u128>(one, other, bytes - 16);
        match bytes {
            49.. => one == other,
            33.. => at_ends() | differ::<u128>(one, other, 16) == 0,
            16.. => at_ends() == 0,
            8.. => differ::<u64>(one, other, 0) | differ::<u64>(one, other, bytes - 8) == 0,
            4.. => differ::<u32>(one, other, 0) | differ::<u32>(one, other, bytes - 4) == 0,
            _ => one.iter().zip(other).all(|(one, other)| one == other),
        }
    }
}

/// # Safety
/// A record starts at `loc`, in a drainable segment that the caller has claimed.
#[inline]
pub(crate) unsafe fn record(region: &Region, loc: u64, layout: Layout) -> Record<'_> {
    plain_access(region.at(loc), 4, false);
    // SAFETY: the caller guarantees that a record starts at `loc`. The column that reserved the
    // record's bytes wrote an item or a void before it committed the bytes. A segment is drainable
    // only when all its bytes are committed; the Acquire in `Segment::drainable` makes the bytes
    // visible. The claim keeps the segment from being reused, and nobody rewrites a record's first
    // bytes.
    unsafe {
        match shape::void_extent(region.at(loc)) {
            Some(extent) => Record::Void(extent),
            None => {
                let at = region.at(loc).cast_const();
                Record::Item(Item::of(at, shape::read(at, layout)))
            }
        }
    }
}

/// Writes an item of `shape` at `loc`. A short CAS unique is stored as its distance from
/// `cas_base`.
///
/// # Safety
/// The caller has reserved the `shape.extent()` bytes from `loc` on, which are not published yet.
pub(crate) unsafe fn write(
    region: &Region,
    loc: u64,
    shape: Shape,
    fields: &Fields<'_>,
    cas_base: u64,
) {
    assert!(
        (1..=KEY_BYTES_MAX).contains(&fields.key.len())
            && fields.key.len() == shape.key_bytes as usize
            && fields.value[0].len() + fields.value[1].len() == shape.log_bytes as usize,
        "an item's fields have its shape's lengths"
    );
    let mut at = region.at(loc);
    let first = shape.first();
    plain_access(at, 4, true);
    // SAFETY: the caller has reserved `shape.extent()` bytes from `at` on, at least five: two first
    // bytes, two of the stamp and, by the assertion above, one of the key. So the word's four bytes
    // lie within the extent. The word's bytes beyond `first.bytes` are overwritten below.
    at = unsafe {
        at.cast::<u32>().write_unaligned(first.word.to_le());
        at.add(first.bytes as usize)
    };
    let mut put = |bytes: &[u8]| {
        plain_access(at, bytes.len(), true);
        // SAFETY: the lengths of the word and of the pieces put below add up to `shape.extent()`,
        // and the caller has reserved these bytes. No source overlaps these unpublished bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at = at.add(bytes.len());
        }
    };
    if let Some(value_bytes) = first.vlen {
        put(&value_bytes.to_le_bytes());
    }
    put(&fields.accessed.0.to_le_bytes());
    match shape.cas() {
        CasWidth::None => {}
        CasWidth::Short => put(&fields.cas.wrapping_sub(cas_base).to_le_bytes()[..4]),
        CasWidth::Long => put(&fields.cas.to_le_bytes()),
    }
    if shape.has_exp() {
        put(&fields.exptime.to_le_bytes());
    }
    if shape.has_flags() {
        put(&fields.client_flags.to_le_bytes());
    }
    if shape.is_chained() {
        put(&fields.first_frame.to_le_bytes());
    }
    put(fields.key);
    let [value, more] = fields.value;
    put(value);
    if !more.is_empty() {
        put(more);
    }
}

/// Writes a void of `extent` bytes at `loc`.
///
/// # Safety
/// The caller has reserved `extent` bytes from `loc` on, at least four, and not published them.
pub(crate) unsafe fn write_void(region: &Region, loc: u64, extent: u32) {
    let void = shape::void(extent);
    plain_access(region.at(loc), void.len(), true);
    // SAFETY: the caller has reserved at least four bytes at `loc`.
    unsafe { region.at(loc).cast::<[u8; 4]>().write(void) };
}
