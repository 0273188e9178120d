//! An item in the log, byte by byte.
//!
//! Where: a slot's `loc` names its first byte; walks of a segment step from one to the next.
//! Invariant: once published, an item's key, shape and extent never change. Its exptime and its
//! last access may, and, where it is short (see `rewrite`), its CAS unique, client flags and value:
//! all written under the group's lock, and accessed by atomics wherever the lock is not held.
//!
//! ```text
//!   0      klen:8                    0 is a void record: bytes 1..4 are its extent, a u24
//!   1..3   vlen:12 | opts:4          little-endian; vlen 4095: a u32 follows
//!   3..5   minute of last access     u16, of the store's clock
//!   [ext:8]                          opts & EXT:   cas is 8 bytes | key given in base64 | chained
//!   [value bytes: u32]               vlen 4095
//!   [cas: u32 or u64]                opts & CAS:   u32 counts from the segment's cas_base
//!   [exptime: u32]                   opts & EXP
//!   [client flags: u32]              opts & FLAGS
//!   [first frame: u32]               ext & CHAINED: the value but its last part is in frames
//!   key    klen bytes
//!   value  all of it, or what the frames, which are full, leave over
//! ```
//! All state that memcached's semantics need is here or in the slot (fetched, stale, won).

#![allow(unsafe_code, reason = "reads and writes items in the mapping")]

mod pieces;

use crate::rewrite::REWRITTEN_BYTES_MAX;
use memory::region::Region;
use pieces::{copy_in, copy_out};
use std::marker::PhantomData;

const HEADER_BYTES: u32 = 5;
const VLEN_LONG: u32 = 0xfff;
const CAS: u8 = 1;
const EXP: u8 = 2;
const FLAGS: u8 = 4;
const EXT: u8 = 8;
const EXT_CAS8: u8 = 1;
const EXT_KEY_BINARY: u8 = 2;
const EXT_CHAINED: u8 = 4;
/// A void's extent stands in three bytes.
const VOID_BYTES_MIN: u32 = 4;
const LAST_ACCESS_AT: usize = 3;

/// The longest key.
pub(crate) const KEY_BYTES_MAX: usize = 250;

/// An exptime field that waits for its time; until then it says never. No clock reaches it.
pub(crate) const EXPTIME_TO_COME: u32 = u32::MAX;

/// How a CAS unique is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CasWidth {
    /// Not at all (`-C`).
    None,
    /// As a distance from the segment's base.
    Short,
    /// In full.
    Long,
}

/// What determines an item's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_bytes: u32,
    /// The whole value, frames included.
    pub(crate) value_bytes: u32,
    /// The part of it in the log.
    pub(crate) log_bytes: u32,
    pub(crate) cas: CasWidth,
    pub(crate) exp: bool,
    pub(crate) flags: bool,
    pub(crate) key_binary: bool,
    pub(crate) chained: bool,
}

impl Shape {
    fn ext(self) -> u8 {
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        bit(self.cas == CasWidth::Long, EXT_CAS8)
            | bit(self.key_binary, EXT_KEY_BINARY)
            | bit(self.chained, EXT_CHAINED)
    }

    fn vlen_long(self) -> bool {
        self.value_bytes >= VLEN_LONG || self.chained
    }

    /// Bytes from the first to the key's.
    fn key_at(self) -> u32 {
        let cas = match self.cas {
            CasWidth::None => 0,
            CasWidth::Short => 4,
            CasWidth::Long => 8,
        };
        let field = |on: bool, bytes: u32| if on { bytes } else { 0 };
        HEADER_BYTES
            + field(self.ext() != 0, 1)
            + field(self.vlen_long(), 4)
            + cas
            + field(self.exp, 4)
            + field(self.flags, 4)
            + field(self.chained, 4)
    }

    /// Bytes it takes in the log.
    pub(crate) fn extent(self) -> u32 {
        self.key_at() + self.key_bytes + self.log_bytes
    }
}

/// An item's fields, to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) key: &'a [u8],
    /// The part of the value in the log, in two pieces.
    pub(crate) value: [&'a [u8]; 2],
    pub(crate) cas: u64,
    pub(crate) exptime: u32,
    pub(crate) client_flags: u32,
    pub(crate) first_frame: u32,
    pub(crate) minute: u16,
}

/// An item seen where it lies, valid as long as its column holds off its next quiescent point.
#[derive(Clone, Copy)]
pub(crate) struct Item<'r> {
    at: *const u8,
    key_at: u32,
    key_bytes: u32,
    value_bytes: u32,
    log_bytes: u32,
    opts: u8,
    ext: u8,
    region: PhantomData<&'r Region>,
}

/// Bytes before the key by `ext << 4 | opts`, without a long value length.
const KEY_AT: [u8; 128] = {
    let mut table = [0; 128];
    let mut at = 0;
    while at < table.len() {
        let (opts, ext) = (at % 16, at / 16);
        let mut bytes = 5;
        if opts & EXT as usize != 0 {
            bytes += 1;
        }
        if opts & CAS as usize != 0 {
            bytes += if ext & EXT_CAS8 as usize != 0 { 8 } else { 4 };
        }
        if opts & EXP as usize != 0 {
            bytes += 4;
        }
        if opts & FLAGS as usize != 0 {
            bytes += 4;
        }
        if ext & EXT_CHAINED as usize != 0 {
            bytes += 4;
        }
        table[at] = bytes;
        at += 1;
    }
    table
};

/// What a walk meets at an offset.
pub(crate) enum Record<'r> {
    /// An item, linked or not.
    Item(Item<'r>),
    /// Nothing, of this extent.
    Void(u32),
}

impl<'r> Item<'r> {
    /// The item at `loc`.
    ///
    /// # Safety
    /// `loc` was in a slot, or a walk of a drainable segment came to it, since the column's last
    /// quiescent point.
    #[inline]
    pub(crate) unsafe fn at(region: &'r Region, loc: u64) -> Self {
        let at = region.at(loc).cast_const();
        // SAFETY: an item was written here before the slot was published, of at least HEADER_BYTES;
        // it is not reused before the column's next quiescent point.
        let (klen, packed) = unsafe { (at.read(), at.add(1).cast::<u16>().read_unaligned()) };
        let packed = u16::from_le(packed);
        let opts = u8::try_from(packed >> 12).unwrap_or(0);
        let has_ext = opts & EXT != 0;
        // SAFETY: `opts` announces that the byte was written.
        let ext = if has_ext { unsafe { at.add(HEADER_BYTES as usize).read() } } else { 0 };
        let mut value_bytes = u32::from(packed & 0xfff);
        let mut key_at = u32::from(KEY_AT[usize::from(((ext & 7) << 4) | opts)]);
        if value_bytes == VLEN_LONG {
            let from = HEADER_BYTES as usize + usize::from(has_ext);
            // SAFETY: the value's length announces that a longer one was written.
            value_bytes = unsafe { at.add(from).cast::<u32>().read_unaligned() };
            key_at += 4;
        }
        Self {
            at,
            key_at,
            key_bytes: u32::from(klen),
            value_bytes,
            log_bytes: value_bytes,
            opts,
            ext,
            region: PhantomData,
        }
    }

    /// As `at`, for an item whose value may lie in frames of `frame_bytes`: what is in the log is
    /// the rest.
    ///
    /// # Safety
    /// As `at`.
    #[inline]
    pub(crate) unsafe fn framed(region: &'r Region, loc: u64, frame_bytes: u32) -> Self {
        // SAFETY: the caller's.
        let mut item = unsafe { Self::at(region, loc) };
        if item.is_chained() {
            item.log_bytes = item.value_bytes % frame_bytes;
        }
        item
    }

    /// Whether the item at `loc` has this key.
    ///
    /// # Safety
    /// As `at`.
    #[inline]
    pub(crate) unsafe fn has_key(region: &'r Region, loc: u64, key: &[u8]) -> bool {
        // SAFETY: as in `at`.
        let klen = unsafe { region.at(loc).read() };
        // SAFETY: the caller's.
        usize::from(klen) == key.len() && is_same(unsafe { Self::at(region, loc) }.key(), key)
    }

    /// The item at `loc` if it has this key, looking at no more than it must.
    ///
    /// # Safety
    /// As `at`.
    #[inline(always)]
    pub(crate) unsafe fn with_key(
        region: &'r Region,
        loc: u64,
        frame_bytes: u32,
        key: &[u8],
    ) -> Option<Self> {
        // SAFETY: as in `at`.
        let klen = unsafe { region.at(loc).read() };
        if usize::from(klen) != key.len() {
            return None;
        }
        // SAFETY: the caller's.
        let item = unsafe { Self::framed(region, loc, frame_bytes) };
        is_same(item.key(), key).then_some(item)
    }

    /// Its layout.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            log_bytes: self.log_bytes,
            cas: match (self.opts & CAS != 0, self.ext & EXT_CAS8 != 0) {
                (false, _) => CasWidth::None,
                (true, false) => CasWidth::Short,
                (true, true) => CasWidth::Long,
            },
            exp: self.has_exp(),
            flags: self.has_flags(),
            key_binary: self.key_binary(),
            chained: self.is_chained(),
        }
    }

    /// Length of its value, and of the part of it in the log.
    #[inline]
    pub(crate) fn value_bytes(&self) -> (u32, u32) {
        (self.value_bytes, self.log_bytes)
    }

    #[inline]
    fn is_chained(&self) -> bool {
        self.ext & EXT_CHAINED != 0
    }

    #[inline]
    pub(crate) fn key_binary(&self) -> bool {
        self.ext & EXT_KEY_BINARY != 0
    }

    #[inline]
    pub(crate) fn has_exp(&self) -> bool {
        self.opts & EXP != 0
    }

    #[inline]
    fn has_flags(&self) -> bool {
        self.opts & FLAGS != 0
    }

    #[inline]
    pub(crate) fn key(&self) -> &'r [u8] {
        self.bytes(self.key_at, self.key_bytes)
    }

    /// The part of the value that is in the log. Only under the group's lock, or where it is never
    /// rewritten.
    #[inline]
    pub(crate) fn log_value(&self) -> &'r [u8] {
        self.bytes(self.key_at + self.key_bytes, self.log_bytes)
    }

    #[inline]
    fn bytes(&self, from: u32, bytes: u32) -> &'r [u8] {
        // SAFETY: the extent was written in full before the item was published (see `at`). What is
        // read of it this way does not change: a key, a frame's number, a value that is too long to
        // be rewritten, or one whose lock the caller holds, which keeps writers out.
        unsafe { std::slice::from_raw_parts(self.at.add(from as usize), bytes as usize) }
    }

    #[inline]
    fn u32_at(&self, from: u32) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.bytes(from, 4));
        u32::from_le_bytes(bytes)
    }

    /// The fields lie back to front before the key: chain, flags, exptime, cas.
    fn chain_at(&self) -> u32 {
        self.key_at - if self.is_chained() { 4 } else { 0 }
    }

    fn flags_at(&self) -> u32 {
        self.chain_at() - if self.has_flags() { 4 } else { 0 }
    }

    fn exp_at(&self) -> u32 {
        self.flags_at() - if self.has_exp() { 4 } else { 0 }
    }

    /// The first frame of its value, where it has frames.
    #[inline]
    pub(crate) fn first_frame(&self) -> Option<u32> {
        self.is_chained().then(|| self.u32_at(self.chain_at()))
    }

    #[inline]
    pub(crate) fn client_flags(&self) -> u32 {
        match self.has_flags() {
            true => u32::from_le_bytes(self.load(self.flags_at() as usize)),
            false => 0,
        }
    }

    /// Its CAS unique, in a segment that counts from `base`; 0: it has none.
    #[inline]
    pub(crate) fn cas(&self, base: u64) -> u64 {
        if self.opts & CAS == 0 {
            return 0;
        }
        let exp_at = self.exp_at();
        match self.ext & EXT_CAS8 {
            0 => base + u64::from(u32::from_le_bytes(self.load(exp_at as usize - 4))),
            _ => u64::from_le_bytes(self.load(exp_at as usize - 8)),
        }
    }

    /// When it expires; 0: never. May be torn while a touch is at it: an "expired" is to be read
    /// again under the lock.
    #[inline]
    pub(crate) fn exptime(&self) -> u32 {
        if !self.has_exp() {
            return 0;
        }
        match u32::from_le_bytes(self.load(self.exp_at() as usize)) {
            EXPTIME_TO_COME => 0,
            exptime => exptime,
        }
    }

    /// Sets its exptime; only where it has one, under the group's lock.
    pub(crate) fn set_exptime(&self, exptime: u32) {
        debug_assert!(self.has_exp());
        self.store(self.exp_at() as usize, exptime.to_le_bytes());
    }

    /// The minute of its last access.
    #[inline]
    pub(crate) fn minute(&self) -> u16 {
        u16::from_le_bytes(self.load(LAST_ACCESS_AT))
    }

    /// Sets it; under the group's lock.
    pub(crate) fn set_minute(&self, minute: u16) {
        self.store(LAST_ACCESS_AT, minute.to_le_bytes());
    }

    #[inline]
    fn load<const N: usize>(&self, from: usize) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: `from..from + N` lies in the item's header (see `at`), and these bytes are only
        // ever accessed by these copies once the item is published. Each value stands alone.
        unsafe { copy_out(self.at.add(from), bytes.as_mut_ptr(), N) };
        bytes
    }

    fn store<const N: usize>(&self, from: usize, bytes: [u8; N]) {
        // SAFETY: as in `load`; the mapping is writable.
        unsafe { copy_in(bytes.as_ptr(), self.at.add(from).cast_mut(), N) };
    }

    /// Copies the part of the value that is in the log, so long as `to`, though it may be being
    /// rewritten: the caller finds out.
    #[inline]
    pub(crate) fn copy_value(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.log_bytes as usize, "all of it");
        // SAFETY: the value's bytes were written before it was published, and since then only by
        // `rewrite`, and so by `copy_in`, in the same pieces; `to` is as long. The caller's fence
        // orders them.
        unsafe { copy_out(self.value_at(), to.as_mut_ptr(), to.len()) };
    }

    /// As `copy_value`, to the end of `out`.
    #[inline]
    pub(crate) fn append_value(&self, out: &mut Vec<u8>) {
        let bytes = self.log_bytes as usize;
        out.reserve(bytes);
        // SAFETY: as in `copy_value`; there is room for so many bytes behind what `out` has, which
        // are written before they are said to be there.
        unsafe {
            copy_out(self.value_at(), out.as_mut_ptr().add(out.len()), bytes);
            out.set_len(out.len() + bytes);
        }
    }

    /// Writes other fields over these, all of the same lengths, under the group's lock;
    /// `fields.cas` counts from `cas_base` where it is short.
    pub(crate) fn rewrite(&self, fields: &Fields<'_>, cas_base: u64) {
        self.set_minute(fields.minute);
        let exp_at = self.exp_at() as usize;
        match self.shape().cas {
            CasWidth::None => {}
            CasWidth::Short => {
                let behind = fields.cas.wrapping_sub(cas_base).to_le_bytes();
                self.store(exp_at - 4, [behind[0], behind[1], behind[2], behind[3]]);
            }
            CasWidth::Long => self.store(exp_at - 8, fields.cas.to_le_bytes()),
        }
        if self.has_exp() {
            self.set_exptime(fields.exptime);
        }
        if self.has_flags() {
            self.store(self.flags_at() as usize, fields.client_flags.to_le_bytes());
        }
        let [value, more] = fields.value;
        if more.is_empty() {
            // Its own value stays.
            if value.as_ptr() != self.value_at() {
                self.store_value(value);
            }
        } else {
            let mut both = [0; REWRITTEN_BYTES_MAX];
            let both = &mut both[..value.len() + more.len()];
            both[..value.len()].copy_from_slice(value);
            both[value.len()..].copy_from_slice(more);
            self.store_value(both);
        }
    }

    fn store_value(&self, value: &[u8]) {
        assert!(
            value.len() == self.log_bytes as usize && value.len() <= REWRITTEN_BYTES_MAX,
            "a value of the old one's length, which readers copy"
        );
        // SAFETY: as in `copy_value`; the mapping is writable, and the group's lock keeps other
        // writers, and readers that use no atomics, out.
        unsafe { copy_in(value.as_ptr(), self.value_at().cast_mut(), value.len()) };
    }

    #[inline]
    fn value_at(&self) -> *const u8 {
        self.at.wrapping_add((self.key_at + self.key_bytes) as usize)
    }

    /// All its fields but the CAS unique, to be written elsewhere.
    pub(crate) fn fields(&self) -> Fields<'r> {
        Fields {
            key: self.key(),
            value: [self.log_value(), &[]],
            cas: 0,
            exptime: self.exptime(),
            client_flags: self.client_flags(),
            first_frame: self.first_frame().unwrap_or(0),
            minute: self.minute(),
        }
    }
}

/// Compares two keys, a word at a time: for their lengths calling `memcmp` costs as much as that.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    const WORD: usize = size_of::<u128>();
    if one.len() != other.len() {
        return false;
    }
    let Some(last) = one.len().checked_sub(WORD) else { return one == other };
    // SAFETY: a word from `at`, at most `last`, lies in both: they are as long.
    let differ = |at: usize| unsafe {
        let (one, other) = (one.as_ptr().add(at), other.as_ptr().add(at));
        one.cast::<u128>().read_unaligned() != other.cast::<u128>().read_unaligned()
    };
    let mut at = 0;
    while at < last {
        if differ(at) {
            return false;
        }
        at += WORD;
    }
    !differ(last)
}

/// What a walk meets at `loc`.
///
/// # Safety
/// `loc` is the start of a record in a drainable segment that the caller claimed.
pub(crate) unsafe fn record(region: &Region, loc: u64, frame_bytes: u32) -> Record<'_> {
    // SAFETY: a record of at least VOID_BYTES_MIN was written here before it was committed.
    unsafe {
        let at = region.at(loc);
        if at.read() == 0 {
            let extent = [at.add(1).read(), at.add(2).read(), at.add(3).read(), 0];
            return Record::Void(u32::from_le_bytes(extent));
        }
        Record::Item(Item::framed(region, loc, frame_bytes))
    }
}

/// Writes an item of `shape` at `loc`; `fields.cas` counts from `cas_base` where it is short.
///
/// # Safety
/// `shape.extent()` bytes from `loc` are the caller's own: reserved and not yet published.
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
    let mut put = |bytes: &[u8]| {
        // SAFETY: the pieces put below sum up to `shape.extent()`, all of it the caller's; the
        // sources do not overlap what is not published yet.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at = at.add(bytes.len());
        }
    };
    let vlen = if shape.vlen_long() { VLEN_LONG } else { shape.value_bytes };
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    let opts = bit(shape.cas != CasWidth::None, CAS)
        | bit(shape.exp, EXP)
        | bit(shape.flags, FLAGS)
        | bit(shape.ext() != 0, EXT);
    let packed = (vlen | (u32::from(opts) << 12)).to_le_bytes();
    let klen = shape.key_bytes.to_le_bytes();
    let minute = fields.minute.to_le_bytes();
    put(&[klen[0], packed[0], packed[1], minute[0], minute[1]]);
    if shape.ext() != 0 {
        put(&[shape.ext()]);
    }
    if shape.vlen_long() {
        put(&shape.value_bytes.to_le_bytes());
    }
    match shape.cas {
        CasWidth::None => {}
        CasWidth::Short => put(&fields.cas.wrapping_sub(cas_base).to_le_bytes()[..4]),
        CasWidth::Long => put(&fields.cas.to_le_bytes()),
    }
    if shape.exp {
        put(&fields.exptime.to_le_bytes());
    }
    if shape.flags {
        put(&fields.client_flags.to_le_bytes());
    }
    if shape.chained {
        put(&fields.first_frame.to_le_bytes());
    }
    put(fields.key);
    put(fields.value[0]);
    put(fields.value[1]);
}

/// Makes `extent` bytes at `loc` a void record.
///
/// # Safety
/// As `write`.
pub(crate) unsafe fn write_void(region: &Region, loc: u64, extent: u32) {
    assert!(extent >= VOID_BYTES_MIN, "smaller than any item");
    let bytes = extent.to_le_bytes();
    // SAFETY: within the caller's bytes.
    unsafe {
        let at = region.at(loc);
        at.write(0);
        at.add(1).write(bytes[0]);
        at.add(2).write(bytes[1]);
        at.add(3).write(bytes[2]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shapes() -> impl Iterator<Item = Shape> {
        (0..64_u32 * 3).map(|bits| {
            let bit = |at: u32| bits & (1 << at) != 0;
            let chained = bit(3);
            let value_bytes = if bit(4) { 9000 } else { 17 };
            Shape {
                key_bytes: if bit(5) { 250 } else { 1 },
                value_bytes,
                log_bytes: if chained { value_bytes % 4096 } else { value_bytes },
                cas: [CasWidth::None, CasWidth::Short, CasWidth::Long][(bits / 64) as usize],
                exp: bit(0),
                flags: bit(1),
                key_binary: bit(2),
                chained,
            }
        })
    }

    #[test]
    fn what_is_written_is_read() {
        let region = Region::new(1 << 20).expect("address space");
        for shape in shapes() {
            let (key, value) = ([7; 250], [9; 9000]);
            let fields = Fields {
                key: &key[..shape.key_bytes as usize],
                value: [&value[..5], &value[5..shape.log_bytes as usize]],
                cas: 1_000_000_000_001,
                exptime: 77,
                client_flags: 0xdead_beef,
                first_frame: 12,
                minute: 513,
            };
            let base = 1_000_000_000_000;
            // SAFETY: the region is this test's alone.
            let item = unsafe {
                write(&region, 100, shape, &fields, base);
                write_void(&region, 100 + u64::from(shape.extent()), 70_000);
                Item::framed(&region, 100, 4096)
            };
            assert_eq!(item.shape(), shape);
            assert_eq!((item.key(), item.minute()), (fields.key, 513));
            assert_eq!(item.log_value(), &value[..shape.log_bytes as usize]);
            assert_eq!(item.exptime(), if shape.exp { 77 } else { 0 });
            assert_eq!(item.client_flags(), if shape.flags { 0xdead_beef } else { 0 });
            assert_eq!(item.first_frame(), shape.chained.then_some(12));
            let cas = if shape.cas == CasWidth::None { 0 } else { base + 1 };
            assert_eq!(item.cas(base), cas);
            item.set_minute(40_000);
            assert_eq!(item.minute(), 40_000);
            if shape.exp {
                item.set_exptime(0x0102_0304);
                assert_eq!(item.exptime(), 0x0102_0304);
            }
            assert_eq!(item.key(), fields.key);
            // SAFETY: written just above.
            let void = unsafe { record(&region, 100 + u64::from(shape.extent()), 4096) };
            assert!(matches!(void, Record::Void(70_000)));
        }
    }

    #[test]
    fn what_is_rewritten_is_read_at_every_place_and_length() {
        let region = Region::new(1 << 20).expect("address space");
        for (loc, len) in (0..8).flat_map(|loc| (0..70).map(move |len| (loc, len))) {
            let old: Vec<u8> = (0..len).collect();
            let new: Vec<u8> = (100..100 + len).collect();
            let shape = Shape {
                key_bytes: 3,
                value_bytes: len.into(),
                log_bytes: len.into(),
                cas: CasWidth::Short,
                exp: true,
                flags: true,
                key_binary: false,
                chained: false,
            };
            let fields = Fields {
                key: b"key",
                value: [&old, &[]],
                cas: 5,
                exptime: 6,
                client_flags: 7,
                first_frame: 0,
                minute: 8,
            };
            // SAFETY: the region is this test's alone.
            let item = unsafe {
                write(&region, 64 + loc, shape, &fields, 0);
                write_void(&region, 64 + loc + u64::from(shape.extent()), 70_000);
                Item::framed(&region, 64 + loc, 4096)
            };
            let value = [&new[..new.len() / 2], &new[new.len() / 2..]];
            let other = Fields { value, cas: 9, exptime: 10, client_flags: 11, ..fields };
            item.rewrite(&Fields { minute: 12, ..other }, 0);
            let mut copy = vec![0; new.len()];
            item.copy_value(&mut copy);
            assert_eq!((&copy, item.log_value()), (&new, &new[..]), "{len} bytes at {loc}");
            assert_eq!((item.key(), item.shape()), (&b"key"[..], shape));
            let rest = (item.cas(0), item.exptime(), item.client_flags(), item.minute());
            assert_eq!(rest, (9, 10, 11, 12));
            // SAFETY: as above.
            let void = unsafe { record(&region, 64 + loc + u64::from(shape.extent()), 4096) };
            assert!(matches!(void, Record::Void(70_000)), "nothing behind it is touched");
        }
    }

    #[test]
    fn a_plain_item_has_nine_bytes_of_overhead() {
        let shape = Shape {
            key_bytes: 20,
            value_bytes: 20,
            log_bytes: 20,
            cas: CasWidth::Short,
            exp: false,
            flags: false,
            key_binary: false,
            chained: false,
        };
        assert_eq!(shape.extent(), 49);
        assert_eq!(Shape { cas: CasWidth::None, ..shape }.extent(), 45);
    }
}
