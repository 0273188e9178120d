//! The properties that determine an item's layout, and the two to four bytes that encode them.
//!
//! Where: the first bytes of every item; lookups read them, and `write` makes them.
//! Invariant: a shape has one form, the shortest that fits it, so equal shapes have equal bytes. In
//! every form the first two bytes have the key's length, which is 0 only in a void record.
//!
//! ```text
//!   form   low bits first
//!   short  1:1    klen:6  vlen:9             u16   nothing but a key, a value and the store's CAS
//!   medium 10:2   klen:6  vlen:12  opts:4    u24
//!   wide   100:3  klen:8  vlen:9   opts:4    u24
//!   long   000:3  klen:8  opts:5   vlen:16   u32   vlen 65535: a u32 follows
//!   void   000:3  klen:8  extent:21          u32   klen 0; its extent, these four bytes included
//! ```
//! The store's configuration determines if items have a CAS unique; an item's options only tell
//! that the unique has eight bytes.

#![allow(unsafe_code, reason = "reads an item's first bytes in the mapping")]

use crate::policy::room::REWRITTEN_BYTES_MAX;
use memory::frames::is_chunk;

pub(crate) const EXP: u8 = 1;
pub(crate) const FLAGS: u8 = 2;
const CAS8: u8 = 4;
/// Option: the client sent the key in base64.
pub(crate) const KEY_BINARY: u8 = 8;
/// Option, only in the long form: the value is in frames, except for its last part, or in chunks.
const CHAINED: u8 = 16;

/// The low bits of each form: the lowest bit that is 1 tells the form. In the long form all are 0.
const SHORT: u32 = 0b1;
const MEDIUM: u32 = 0b10;
const WIDE: u32 = 0b100;
const LONG: u32 = 0b000;
/// Maximum length of a key (`KLEN`) and of a value (`VLEN`) in the form that the name begins with.
const SHORT_KLEN_MAX: u32 = (1 << 6) - 1;
const SHORT_VLEN_MAX: u32 = (1 << 9) - 1;
const MEDIUM_VLEN_MAX: u32 = (1 << 12) - 1;
/// The marker, in the long form, that the value's length follows.
const VLEN_FOLLOWS: u32 = (1 << 16) - 1;
const VOID_EXTENT_AT: u32 = 11;
/// Bytes of the smallest void, which is one word and smaller than any item, and of the largest
/// void, whose extent just fits in the word.
pub(super) const VOID_BYTES_MIN: u32 = 4;
pub(super) const VOID_BYTES_MAX: u32 = (1 << (32 - VOID_EXTENT_AT)) - 1;
const STAMP_BYTES: u32 = 2;

/// Bytes of the optional fields for each `opts`; of a CAS unique, the first four are not counted.
const FIELDS: [u8; 32] = {
    let mut table = [0; 32];
    let mut opts = 0;
    while opts < table.len() {
        let mut fields = (EXP | FLAGS | CAS8 | CHAINED) as usize & opts;
        while fields != 0 {
            table[opts] += 4;
            fields &= fields - 1;
        }
        opts += 1;
    }
    table
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CasWidth {
    /// The item has no CAS unique (`-C`).
    None,
    /// Four bytes: the distance of the unique from the segment's `cas_base`.
    Short,
    /// Eight bytes: the unique itself.
    Long,
}

/// The properties that all items of a store share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) cas: bool,
    pub(crate) frame_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) key_bytes: u32,
    /// The length of the whole value, including the part that is outside the log.
    pub(crate) value_bytes: u32,
    /// The length of the value's part in the log.
    pub(crate) log_bytes: u32,
    opts: u8,
    has_cas: bool,
}

impl Shape {
    #[inline]
    pub(crate) fn new(key_bytes: u32, value_bytes: u32, cas: CasWidth) -> Self {
        let plain =
            Self { key_bytes, value_bytes, log_bytes: value_bytes, opts: 0, has_cas: false };
        plain.with_cas(cas)
    }

    /// The shape with option `bit` set if `on` is true, and cleared if not.
    #[inline]
    pub(crate) fn with(self, bit: u8, on: bool) -> Self {
        Self { opts: if on { self.opts | bit } else { self.opts & !bit }, ..self }
    }

    #[inline]
    pub(crate) fn with_cas(self, cas: CasWidth) -> Self {
        Self { has_cas: cas != CasWidth::None, ..self.with(CAS8, cas == CasWidth::Long) }
    }

    #[inline]
    pub(crate) fn in_frames(self, log_bytes: u32) -> Self {
        Self { log_bytes, ..self.with(CHAINED, true) }
    }

    #[inline]
    pub(crate) fn cas(&self) -> CasWidth {
        match (self.has_cas, self.opts & CAS8 != 0) {
            (false, _) => CasWidth::None,
            (true, false) => CasWidth::Short,
            (true, true) => CasWidth::Long,
        }
    }

    #[inline]
    pub(crate) fn has_exp(&self) -> bool {
        self.opts & EXP != 0
    }

    #[inline]
    pub(crate) fn has_flags(&self) -> bool {
        self.opts & FLAGS != 0
    }

    #[inline]
    pub(crate) fn key_binary(&self) -> bool {
        self.opts & KEY_BINARY != 0
    }

    #[inline]
    pub(crate) fn is_chained(&self) -> bool {
        self.opts & CHAINED != 0
    }

    /// True if an item of this shape may be rewritten in place: its whole value is in the log, and
    /// has at most `REWRITTEN_BYTES_MAX` bytes.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        !self.is_chained() && self.log_bytes as usize <= REWRITTEN_BYTES_MAX
    }

    /// Bytes the item takes, including the part of its value that is outside the log.
    #[inline]
    pub(crate) fn all_bytes(&self) -> u64 {
        u64::from(self.extent()) + u64::from(self.value_bytes - self.log_bytes)
    }

    /// Bytes the item takes in the log.
    #[inline]
    pub(crate) fn extent(&self) -> u32 {
        self.first().fields_at() + self.field_bytes() + self.key_bytes + self.log_bytes
    }

    #[inline]
    fn field_bytes(&self) -> u32 {
        let cas_bytes = if self.has_cas { 4 } else { 0 };
        cas_bytes + u32::from(FIELDS[usize::from(self.opts & 31)])
    }

    #[inline]
    pub(super) fn first(&self) -> Prefix {
        let Self { key_bytes, value_bytes, opts, .. } = *self;
        let opts = u32::from(opts);
        let of = |word, bytes| Prefix { word, bytes, vlen: None };
        if opts == 0 && key_bytes <= SHORT_KLEN_MAX && value_bytes <= SHORT_VLEN_MAX {
            return of(SHORT | (key_bytes << 1) | (value_bytes << 7), 2);
        }
        let chained = opts & u32::from(CHAINED) != 0;
        if !chained && key_bytes <= SHORT_KLEN_MAX && value_bytes <= MEDIUM_VLEN_MAX {
            return of(MEDIUM | (key_bytes << 2) | (value_bytes << 8) | (opts << 20), 3);
        }
        if !chained && value_bytes <= SHORT_VLEN_MAX {
            return of(WIDE | (key_bytes << 3) | (value_bytes << 11) | (opts << 20), 3);
        }
        let vlen = value_bytes.min(VLEN_FOLLOWS);
        let word = LONG | (key_bytes << 3) | (opts << 11) | (vlen << 16);
        Prefix { word, bytes: 4, vlen: (vlen == VLEN_FOLLOWS).then_some(value_bytes) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) word: u32,
    pub(super) bytes: u32,
    /// The value's length, if it follows the word.
    pub(super) vlen: Option<u32>,
}

impl Prefix {
    /// The offset of the fields, which follow the stamp.
    #[inline]
    fn fields_at(self) -> u32 {
        self.bytes + if self.vlen.is_some() { 4 } else { 0 } + STAMP_BYTES
    }
}

#[derive(Clone, Copy)]
pub(super) struct DecodedPrefix {
    pub(super) shape: Shape,
    pub(super) fields_at: u32,
    pub(super) key_at: u32,
}

impl DecodedPrefix {
    #[inline(always)]
    fn new(layout: Layout, (key_bytes, value_bytes, opts): (u32, u32, u32), first: u32) -> Self {
        let opts = opts.to_le_bytes()[0];
        let (log_bytes, has_cas) = (value_bytes, layout.cas);
        let shape = Shape { key_bytes, value_bytes, log_bytes, opts, has_cas };
        let fields_at = first + STAMP_BYTES;
        Self { shape, fields_at, key_at: fields_at + shape.field_bytes() }
    }
}

/// Reads the first bytes of the item at `at`.
///
/// # Safety
/// An item was written at `at`, and the item's bytes are not reused during the call.
#[inline]
pub(super) unsafe fn read(at: *const u8, layout: Layout) -> DecodedPrefix {
    // SAFETY: the caller's guarantee. An item that has none of the shorter forms has the long form.
    unsafe { read_shorter(at, layout).unwrap_or_else(|| read_long(at, layout)) }
}

/// Like `read`, but returns `None` for an item in the long form. In all other forms the whole value
/// is in the log.
///
/// # Safety
/// See `read`.
#[inline(always)]
pub(super) unsafe fn read_shorter(at: *const u8, layout: Layout) -> Option<DecodedPrefix> {
    // SAFETY: every form has at least two bytes.
    let word = u32::from(u16::from_le(unsafe { at.cast::<u16>().read_unaligned() }));
    if word & SHORT != 0 {
        return Some(DecodedPrefix::new(layout, ((word >> 1) & SHORT_KLEN_MAX, word >> 7, 0), 2));
    }
    // SAFETY: every form but the short form has at least three bytes.
    let word = word | (u32::from(unsafe { at.add(2).read() }) << 16);
    if word & MEDIUM != 0 {
        let lengths = ((word >> 2) & SHORT_KLEN_MAX, (word >> 8) & MEDIUM_VLEN_MAX, word >> 20);
        return Some(DecodedPrefix::new(layout, lengths, 3));
    }
    let lengths = ((word >> 3) & 0xff, (word >> 11) & SHORT_VLEN_MAX, word >> 20);
    (word & WIDE != 0).then(|| DecodedPrefix::new(layout, lengths, 3))
}

/// Like `read`, but only for an item in the long form.
///
/// # Safety
/// See `read`.
#[inline(never)]
unsafe fn read_long(at: *const u8, layout: Layout) -> DecodedPrefix {
    // SAFETY: the long form has four bytes; if it says `VLEN_FOLLOWS`, four more bytes follow.
    let (word, follows) = unsafe {
        let word = u32::from_le(at.cast::<u32>().read_unaligned());
        (word, || u32::from_le(at.add(4).cast::<u32>().read_unaligned()))
    };
    let (key_bytes, opts) = ((word >> 3) & 0xff, (word >> 11) & 31);
    let mut read = match word >> 16 {
        VLEN_FOLLOWS => DecodedPrefix::new(layout, (key_bytes, follows(), opts), 8),
        vlen => DecodedPrefix::new(layout, (key_bytes, vlen, opts), 4),
    };
    if read.shape.is_chained() {
        let first_frame_at = read.key_at as usize - 4;
        // SAFETY: by the caller's guarantee an item is at `at`. The item is `CHAINED`, so `write`
        // stored the number of its first frame in the four bytes before the key, and `key_at` is at
        // least 4. The number is never rewritten.
        let first_frame = unsafe { at.add(first_frame_at).cast::<u32>().read_unaligned() };
        read.shape.log_bytes = match is_chunk(u32::from_le(first_frame)) {
            true => 0,
            false => read.shape.log_bytes % layout.frame_bytes.max(1),
        };
    }
    read
}

/// The extent of the void at `at`; `None` if an item is there.
///
/// # Safety
/// A record (an item or a void) was written at `at`.
pub(super) unsafe fn void_extent(at: *const u8) -> Option<u32> {
    const FORM_AND_KLEN: u32 = (1 << VOID_EXTENT_AT) - 1;
    // SAFETY: every record has at least two bytes.
    let low = u32::from(u16::from_le(unsafe { at.cast::<u16>().read_unaligned() }));
    // SAFETY: a void has four bytes.
    let word = || u32::from_le(unsafe { at.cast::<u32>().read_unaligned() });
    (low & FORM_AND_KLEN == 0).then(|| word() >> VOID_EXTENT_AT)
}

pub(super) fn void(extent: u32) -> [u8; 4] {
    let range = VOID_BYTES_MIN..=VOID_BYTES_MAX;
    assert!(range.contains(&extent), "a place for an item, which is larger and in one segment");
    (extent << VOID_EXTENT_AT).to_le_bytes()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LAYOUTS: [Layout; 2] =
        [Layout { cas: false, frame_bytes: 16 << 10 }, Layout { cas: true, frame_bytes: 16 << 10 }];

    fn widths(layout: Layout) -> &'static [CasWidth] {
        if layout.cas { &[CasWidth::Short, CasWidth::Long] } else { &[CasWidth::None] }
    }

    /// Every combination of options, for keys and values at the limits of the forms.
    fn shapes(layout: Layout) -> impl Iterator<Item = Shape> {
        let keys = [1, 2, 62, 63, 64, 65, 249, 250];
        let values =
            [0, 1, 510, 511, 512, 513, 4094, 4095, 4096, 4097, 16_384, 65_534, 65_535, u32::MAX];
        let lengths = keys.into_iter().flat_map(move |key| values.map(|value| (key, value)));
        lengths.flat_map(move |(key, value)| {
            widths(layout).iter().flat_map(move |cas| {
                (0..16_u8).map(move |opts| {
                    let shape = Shape::new(key, value, *cas)
                        .with(EXP, opts & 1 != 0)
                        .with(FLAGS, opts & 2 != 0)
                        .with(KEY_BINARY, opts & 4 != 0);
                    let framed = opts & 8 != 0;
                    if framed { shape.in_frames(value % layout.frame_bytes) } else { shape }
                })
            })
        })
    }

    fn bytes_of(first: Prefix) -> Vec<u8> {
        let mut bytes = first.word.to_le_bytes()[..first.bytes as usize].to_vec();
        bytes.extend(first.vlen.into_iter().flat_map(u32::to_le_bytes));
        bytes
    }

    #[test]
    fn what_first_bytes_say_is_what_they_were_made_from() {
        for layout in LAYOUTS {
            for shape in shapes(layout) {
                let first = shape.first();
                assert_eq!(first.word.checked_shr(8 * first.bytes).unwrap_or(0), 0, "{shape:?}");
                // Fills the bytes behind with ones, then with zeros. `read` ignores all of them
                // except the first frame's number, which tells if the value is in the arena.
                let chunked = shape.is_chained().then(|| (shape.in_frames(0), 7 | 1 << 31));
                let framed = [Some((shape, 7_u32)), chunked].into_iter().flatten();
                for ((shape, first_frame), behind) in framed.flat_map(|it| [(it, 0xff), (it, 0)]) {
                    let mut bytes = bytes_of(first);
                    if shape.is_chained() {
                        let fields = STAMP_BYTES + shape.field_bytes() - 4;
                        bytes.extend((0..fields).map(|_| behind));
                        bytes.extend(first_frame.to_le_bytes());
                    }
                    bytes.extend([behind; 8]);
                    // SAFETY: `bytes` holds an item's first bytes, and more.
                    let read = unsafe { read(bytes.as_ptr(), layout) };
                    assert_eq!(read.shape, shape);
                    let before = first.bytes + if first.vlen.is_some() { 4 } else { 0 };
                    assert_eq!(read.fields_at, before + 2, "{shape:?}");
                    let fields = read.key_at - read.fields_at;
                    let words = |on: bool, words: u32| if on { 4 * words } else { 0 };
                    let cas = [0, 4, 8][shape.cas() as usize];
                    let due = cas
                        + words(shape.has_exp(), 1)
                        + words(shape.has_flags(), 1)
                        + words(shape.is_chained(), 1);
                    assert_eq!(fields, due, "{shape:?}");
                    // SAFETY: `bytes` holds an item's first bytes, and more.
                    assert_eq!(unsafe { void_extent(bytes.as_ptr()) }, None, "{shape:?}");
                    let extent = u64::from(read.key_at)
                        + u64::from(shape.key_bytes)
                        + u64::from(shape.log_bytes);
                    if extent < u64::from(u32::MAX) {
                        assert_eq!(u64::from(shape.extent()), extent, "{shape:?}");
                        assert!(extent > u64::from(VOID_BYTES_MIN), "{shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn different_shapes_have_different_first_bytes() {
        for layout in LAYOUTS {
            let mut seen = std::collections::HashMap::new();
            for shape in shapes(layout) {
                if let Some(other) = seen.insert(bytes_of(shape.first()), shape) {
                    assert_eq!(other, shape);
                }
            }
        }
    }

    #[test]
    fn a_form_takes_what_it_says_and_no_more() {
        let bytes = |key, value, opts| {
            Shape { opts, ..Shape::new(key, value, CasWidth::None) }.first().bytes
        };
        assert_eq!([bytes(63, 511, 0), bytes(63, 512, 0), bytes(64, 511, 0)], [2, 3, 3]);
        assert_eq!([bytes(1, 0, EXP), bytes(63, 4095, EXP), bytes(63, 4096, EXP)], [3, 3, 4]);
        assert_eq!([bytes(250, 511, FLAGS), bytes(64, 512, 0), bytes(1, 0, CHAINED)], [3, 4, 4]);
        assert_eq!(Shape::new(1, 65_534, CasWidth::None).first().vlen, None);
        assert_eq!(Shape::new(1, 65_535, CasWidth::None).first().vlen, Some(65_535));
    }

    #[test]
    fn voids_say_their_extent() {
        for extent in [VOID_BYTES_MIN, 5, 255, 256, 65_536, VOID_BYTES_MAX] {
            let mut bytes = void(extent).to_vec();
            // SAFETY: `bytes` holds the four bytes of a void.
            assert_eq!(unsafe { void_extent(bytes.as_ptr()) }, Some(extent));
            bytes.extend([0xff; 4]);
            // SAFETY: `bytes` holds the four bytes of a void, and more.
            assert_eq!(unsafe { void_extent(bytes.as_ptr()) }, Some(extent));
        }
    }

    #[test]
    fn a_plain_item_has_eight_bytes_of_overhead() {
        let plain = Shape::new(20, 20, CasWidth::Short);
        assert_eq!(plain.extent(), 48);
        assert_eq!(Shape::new(20, 20, CasWidth::None).extent(), 44);
        // An exptime, like client flags, takes four bytes, and the longer form takes one byte.
        assert_eq!([plain.with(EXP, true).extent(), plain.with(FLAGS, true).extent()], [53, 53]);
    }
}
