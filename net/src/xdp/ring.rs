//! A ring that a socket shares with the kernel: one side writes entries, the other side takes them.
//!
//! ```text
//! mapping   | producer | ... | consumer | ... | flags | ... | entry | entry | ...
//!
//!     consumer          producer            both only increase and wrap around; the lower bits of
//! ... |  to be taken    |  room ...         a count are its entry's index
//! ```
//!
//! Where: we write the fill and tx rings; the kernel writes the rx and completion rings.
//! Invariant: a ring has one producer and one consumer, and the kernel is one of the two. An entry
//! is written before it is published, and read before it is released.
//! Source: `net/xdp/xsk_queue.h` of Linux, which explains the barriers.
#![allow(unsafe_code, reason = "the kernel's half of a ring is reached by pointers")]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::{io, ptr};

use memory::plant::{Fault, is};
use memory::sync::{AtomicU32, Ordering, plain_access};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

#[derive(Debug)]
struct Mapped<T> {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: a mapping is a range of addresses, which any thread may use and unmap. Our half of a ring
// is written through `&mut` of the `ProducerRing` or `ConsumerRing` that owns the ring; all
// accesses to the kernel's half are atomic.
unsafe impl<T: Send> Send for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps a ring of `entries` entries, laid out at the kernel's `offsets`. `T` is one of the
    /// kernel's entry types, which hold only integers.
    fn new(
        socket: BorrowedFd<'_>,
        entries: u32,
        offsets: &XdpRingOffset,
        page_offset: u64,
    ) -> io::Result<Mapped<T>> {
        let broken =
            || io::Error::other("the kernel reports an AF_XDP ring with an unknown layout");
        if !entries.is_power_of_two() {
            return Err(broken());
        }
        let at = |offset: u64| usize::try_from(offset).map_err(|_| broken());
        let first = at(offsets.desc)?;
        let mapping_bytes = first.checked_add(entries as usize * size_of::<T>());
        let mapping_bytes = mapping_bytes.ok_or_else(broken)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other mapping.
        let start =
            unsafe { mmap(ptr::null_mut(), mapping_bytes, prot, flags, socket, page_offset)? };
        let mapping = NonNull::new(start.cast::<u8>()).ok_or_else(broken)?;
        let word = |offset: u64| {
            let fits = at(offset)?.checked_add(4).is_some_and(|end| end <= mapping_bytes);
            if !fits || !offset.is_multiple_of(4) {
                return Err(broken());
            }
            // SAFETY: the four bytes from `offset` on lie in the mapping, as checked above.
            Ok(unsafe { mapping.add(at(offset)?) }.cast::<AtomicU32>())
        };
        let ring = (|| {
            let flags = offsets.flags.map(word).transpose()?;
            // SAFETY: the mapping has `first` bytes, and the entries after them.
            let entries_at = unsafe { mapping.add(first) }.cast::<T>();
            if !entries_at.is_aligned() {
                return Err(broken());
            }
            Ok(Mapped {
                mapping,
                mapping_bytes,
                producer: word(offsets.producer)?,
                consumer: word(offsets.consumer)?,
                flags,
                entries: entries_at,
                mask: entries - 1,
            })
        })();
        if ring.is_err() {
            unmap(mapping, mapping_bytes);
        }
        ring
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word is aligned and lies in the mapping, which lives
        // as long as `self`. The kernel accesses the word atomically too.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`, `new` has checked that the word is aligned and in the mapping.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, count: u32) -> *mut T {
        // SAFETY: a masked count is below the number of entries, all of which lie in the mapping.
        unsafe { self.entries.add((count & self.mask) as usize) }.as_ptr()
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        unmap(self.mapping, self.mapping_bytes);
    }
}

fn unmap(mapping: NonNull<u8>, bytes: usize) {
    // SAFETY: `new` has mapped the range, and no code has a pointer into it any more.
    let unmapped = unsafe { munmap(mapping.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
}

/// A ring to which we write and from which the kernel takes.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    ring: Mapped<T>,
    /// Number of entries written, published or not.
    written: u32,
    /// Number of entries that the kernel had taken when its count was last read.
    taken: u32,
}

impl<T: Copy> ProducerRing<T> {
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        entries: u32,
        offsets: &XdpRingOffset,
        page_offset: u64,
    ) -> io::Result<ProducerRing<T>> {
        let ring = Mapped::new(socket, entries, offsets, page_offset)?;
        Ok(ProducerRing { ring, written: 0, taken: 0 })
    }

    #[inline]
    #[must_use]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.written.wrapping_sub(self.taken) > self.ring.mask {
            self.look();
            let is_full = self.written.wrapping_sub(self.taken) > self.ring.mask;
            if is_full && !is(Fault::FullRingOverwritten) {
                return false;
            }
        }
        if is(Fault::EntryShownEarly) {
            self.ring.producer().store(self.written.wrapping_add(1), Ordering::Release);
        }
        let place = self.ring.entry(self.written);
        plain_access(place.cast(), size_of::<T>(), true);
        // SAFETY: the entry lies in the mapping and is aligned. `taken` shows that the kernel has
        // taken the old entry at this address. The kernel reads the new entry only after `publish`.
        unsafe { place.write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Reads the kernel's count, and returns the number of entries that can be written.
    pub(super) fn room(&mut self) -> usize {
        (self.ring.mask + 1).saturating_sub(self.waiting()) as usize
    }

    /// Makes the written entries visible to the kernel.
    #[inline]
    pub(super) fn publish(&self) {
        // Release, pairs with the kernel's acquire of the producer: the kernel sees the entries.
        self.ring.producer().store(self.written, Ordering::Release);
    }

    /// Number of entries that the kernel has not taken.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.look();
        self.written.wrapping_sub(self.taken)
    }

    fn look(&mut self) {
        // Acquire, pairs with the kernel's release of the consumer: the kernel has read the entries
        // before we overwrite them.
        let taken = self.ring.consumer().load(Ordering::Acquire);
        // A count beyond the written entries is ignored, because a post would never end with it.
        let waiting = self.written.wrapping_sub(self.taken);
        if self.written.wrapping_sub(taken) <= waiting || is(Fault::TakenCountTrusted) {
            self.taken = taken;
        }
    }

    /// True if the kernel sleeps until a system call, or if the kernel does not report its sleep.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.flags.is_none_or(|flags| {
            // SAFETY: `Mapped::new` has checked that the word is aligned and lies in the mapping.
            let flags = unsafe { flags.as_ref() };
            // Relaxed: the flag orders no other memory. If we see the flag late, a later call wakes
            // the driver.
            let bits = flags.load(Ordering::Relaxed);
            bits & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        })
    }
}

/// A ring to which the kernel writes and from which we take.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    ring: Mapped<T>,
    /// Number of entries taken and released.
    taken: u32,
    /// Number of entries that the kernel had written when its count was last read.
    written: u32,
}

impl<T: Copy> ConsumerRing<T> {
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        entries: u32,
        offsets: &XdpRingOffset,
        page_offset: u64,
    ) -> io::Result<ConsumerRing<T>> {
        let ring = Mapped::new(socket, entries, offsets, page_offset)?;
        Ok(ConsumerRing { ring, taken: 0, written: 0 })
    }

    /// Reads the kernel's count, and returns the number of entries that can be taken.
    #[inline]
    pub(super) fn look(&mut self) -> u32 {
        // Acquire, pairs with the kernel's release of the producer: we see the entries, and the
        // bytes that the kernel has written to the chunks named in the entries.
        self.written = self.ring.producer().load(Ordering::Acquire);
        // A count beyond the ring's size is treated as a full ring.
        let most = if is(Fault::WrittenCountTrusted) { u32::MAX } else { self.ring.mask + 1 };
        self.written.wrapping_sub(self.taken).min(most)
    }

    /// Returns an entry without taking it: entry number `ahead`, counted from 0 at the next entry
    /// to take. `ahead` must be less than the number that `look` returned.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> T {
        let place = self.ring.entry(self.taken.wrapping_add(ahead));
        plain_access(place.cast(), size_of::<T>(), false);
        // SAFETY: the entry lies in the mapping and is aligned; any bytes are a valid `T`, which
        // has only integers. The kernel writes to this entry again only after it is released.
        unsafe { place.read() }
    }

    /// Takes `entries` entries, and releases their memory to the kernel.
    #[inline]
    pub(super) fn release(&mut self, entries: u32) {
        self.taken = self.taken.wrapping_add(entries);
        // Release, pairs with the kernel's acquire of the consumer: the kernel writes to the
        // entries only after we have read them.
        self.ring.consumer().store(self.taken, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::{AsFd, OwnedFd};

    const OFFSETS: XdpRingOffset =
        XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(8) };

    pub(in crate::xdp) struct Kernel(OwnedFd);

    impl Kernel {
        pub(in crate::xdp) fn new() -> Kernel {
            let memory = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&memory, 1 << 16).unwrap();
            Kernel(memory)
        }

        /// Returns both ends of a ring. The test uses one end in the place of the kernel.
        pub(in crate::xdp) fn ends<T: Copy>(
            &self,
            entries: u32,
        ) -> (ProducerRing<T>, ConsumerRing<T>) {
            let fd = self.0.as_fd();
            let producing = ProducerRing::new(fd, entries, &OFFSETS, 0).unwrap();
            (producing, ConsumerRing::new(fd, entries, &OFFSETS, 0).unwrap())
        }
    }

    impl<T> ConsumerRing<T> {
        pub(in crate::xdp) fn need_wakeup(&self, is_asleep: bool) {
            // SAFETY: `Mapped::new` has checked that the word is aligned and lies in the mapping.
            let flags = unsafe { self.ring.flags.unwrap().as_ref() };
            flags.store(u32::from(is_asleep), Ordering::Relaxed); // no other thread reads the flag
        }
    }

    #[test]
    fn what_one_end_publishes_the_other_takes_however_often_the_counts_wrap_around() {
        let kernel = Kernel::new();
        let (mut producing, mut consuming) = kernel.ends::<u64>(4);
        for start in [0, u32::MAX - 5] {
            for count in [&mut producing.written, &mut producing.taken] {
                *count = start;
            }
            (consuming.written, consuming.taken) = (start, start);
            consuming.release(0);
            producing.publish();
            let mut next = 0_u64;
            for round in 0..10_u64 {
                let count = round % 5;
                for number in 0..count {
                    assert!(producing.push(next + number), "{number} of {count}");
                }
                assert_eq!(consuming.look(), 0, "not published");
                producing.publish();
                assert_eq!(u64::from(consuming.look()), count);
                assert_eq!(u64::from(producing.waiting()), count);
                (0..u32::try_from(count).unwrap()).for_each(|ahead| {
                    assert_eq!(consuming.peek(ahead), next + u64::from(ahead));
                });
                consuming.release(u32::try_from(count).unwrap());
                assert_eq!(producing.waiting(), 0);
                next += count;
            }
            assert!((0..4).all(|number| producing.push(number)) && !producing.push(4));
            producing.publish();
            consuming.look();
            consuming.release(1);
            assert!(producing.push(4) && !producing.push(5));
            producing.publish();
            consuming.release(4);
            assert_eq!(producing.waiting(), 0);
        }
    }

    #[test]
    fn counts_that_lie_lead_nowhere() {
        let kernel = Kernel::new();
        let (mut producing, mut consuming) = kernel.ends::<u64>(4);
        producing.ring.producer().store(1000, Ordering::Relaxed); // no other thread reads it
        assert_eq!(consuming.look(), 4, "at most the entries of the ring");
        consuming.ring.consumer().store(1000, Ordering::Relaxed); // no other thread reads it
        assert!((0..4).all(|number| producing.push(number)));
        assert!(!producing.push(4), "the count is beyond the written entries");
        assert_eq!(producing.waiting(), 4);
    }

    #[test]
    fn a_ring_that_does_not_fit_its_mapping_is_refused() {
        let kernel = Kernel::new();
        let refuses = |entries, offsets| {
            ProducerRing::<u64>::new(kernel.0.as_fd(), entries, &offsets, 0).is_err()
        };
        assert!(!refuses(4, OFFSETS));
        assert!(refuses(3, OFFSETS) && refuses(0, OFFSETS));
        assert!(refuses(4, XdpRingOffset { producer: 160, ..OFFSETS }), "beyond the end");
        assert!(refuses(4, XdpRingOffset { consumer: 2, ..OFFSETS }), "not aligned");
        assert!(refuses(4, XdpRingOffset { flags: Some(u64::MAX), ..OFFSETS }));
        assert!(refuses(4, XdpRingOffset { desc: 129, ..OFFSETS }));
        assert!(refuses(4, XdpRingOffset { desc: u64::MAX, ..OFFSETS }));
        let (producing, consuming) = kernel.ends::<u64>(4);
        assert!(!producing.needs_wakeup());
        consuming.need_wakeup(true);
        assert!(producing.needs_wakeup());
    }
}
