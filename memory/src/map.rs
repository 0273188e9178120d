//! Address space from the system: reserved at once, backed by memory as it is touched.
//!
//! Where: under the region of segments and the index's words.
//! Invariant: a `Map` is private, readable and writable, zero where never written, and at one
//! address from `new` to `drop`. What is given back is whole pages of the system's, so that
//! nothing beside it goes.

#![allow(unsafe_code, reason = "mmap and madvise")]

use crate::sync::{AtomicBool, Ordering};
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock, mlock_with};
use rustix::mm::{mmap_anonymous, munlock, munmap};
use std::{io, ptr::NonNull};

/// Huge pages on x86-64; mappings are aligned to it so that the kernel may use them.
const HUGE_BYTES: usize = 2 << 20;

/// Bytes of the system's pages: what memory is given back by.
#[must_use]
pub fn page_bytes() -> usize {
    #[cfg(debug_assertions)]
    if let Some(planted) = planted::page_bytes() {
        return planted;
    }
    rustix::param::page_size()
}

/// Has maps that this thread makes from now on go by larger pages than the system's: what tests
/// plant where there are none.
#[cfg(debug_assertions)]
pub fn plant_page_bytes(bytes: usize) {
    planted::set(bytes);
}

#[cfg(debug_assertions)]
mod planted {
    use std::cell::Cell;

    thread_local! {
        static PAGE_BYTES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    pub(super) fn page_bytes() -> Option<usize> {
        PAGE_BYTES.get()
    }

    pub(super) fn set(bytes: usize) {
        PAGE_BYTES.set(Some(bytes));
    }
}

/// An anonymous mapping.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    bytes: usize,
    page_bytes: usize,
    mapped: (NonNull<u8>, usize),
    /// What is in use of it is locked, and so kept from being swapped out.
    is_locked: AtomicBool,
}

// SAFETY: a `Map` is only an address range; whoever reads or writes through `base` proves for
// himself that it is synchronised.
unsafe impl Send for Map {}
// SAFETY: as for Send; no method of `Map` itself reads or writes the mapped bytes.
unsafe impl Sync for Map {}

impl Map {
    /// Reserves `bytes`, to be backed by small pages; aligned to a huge page, if it can hold one.
    ///
    /// # Errors
    /// The system's, when it refuses the address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let page_bytes = page_bytes();
        let align = if bytes < HUGE_BYTES { page_bytes } else { HUGE_BYTES };
        // The system aligns to its own pages.
        let more = align - rustix::param::page_size().min(align);
        let length = bytes.max(1).checked_next_multiple_of(page_bytes).ok_or_else(too_much)?;
        let whole = length.checked_add(more).ok_or_else(too_much)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory of ours.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, prot, flags)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(too_much)?;
        let skip = start.as_ptr().align_offset(align);
        // SAFETY: `skip` is `more` at most, and the mapping is `length + more` long.
        let base = unsafe { start.add(skip) };
        // SAFETY: the same, from the other end.
        let behind = unsafe { base.add(length) };
        // What is not needed counts where address space is limited.
        unmap(start, skip);
        unmap(behind, more - skip);
        let is_locked = AtomicBool::new(false);
        let map = Self { base, bytes, page_bytes, mapped: (base, length), is_locked };
        // Else the kernel, in time, makes whole huge pages of what was given back in part.
        map.advise(bytes, Advice::LinuxNoHugepage);
        Ok(map)
    }

    /// Its first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Asks for huge pages under the first `bytes`. A wish: kernels without them ignore it.
    pub fn want_huge(&self, bytes: usize) {
        self.advise(bytes, Advice::LinuxHugepage);
    }

    fn advise(&self, bytes: usize, advice: Advice) {
        let bytes = bytes.min(self.bytes);
        // SAFETY: the range is ours, and what is advised here, the size of pages, changes no
        // contents.
        let advised = unsafe { madvise(self.base.as_ptr().cast(), bytes, advice) };
        // Not granted is as good as not asked.
        let _ = advised;
    }

    /// Gives the memory behind a range back to the system; what of it is whole pages reads as zero
    /// afterwards, and the rest stays.
    ///
    /// # Safety
    /// Nobody reads or writes the range meanwhile, and nobody relies on its contents.
    pub unsafe fn give_back(&self, at: usize, bytes: usize) {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "range outside the mapping");
        // The system rounds a length up, and what lies behind it would go too.
        let from = at.next_multiple_of(self.page_bytes);
        let to = (at + bytes) / self.page_bytes * self.page_bytes;
        if from >= to {
            return;
        }
        // SAFETY: within the mapping.
        let start = unsafe { self.base.as_ptr().add(from).cast() };
        if self.is_locked() {
            // SAFETY: whole pages of the mapping (checked above); no contents change. Not done,
            // what follows is refused, and the memory stays ours.
            let _ = unsafe { munlock(start, to - from) };
        }
        // SAFETY: as above, within what the caller vouches that nobody uses.
        let given = unsafe { madvise(start, to - from, Advice::LinuxDontNeed) };
        let _ = given;
    }
}

impl Map {
    /// Has a range become memory, its contents as they are; locked, where the map is.
    ///
    /// Each page is touched: to have the system populate all of the range (`MADV_POPULATE_WRITE`)
    /// holds the lock of all the process's mappings, and a column that maps memory meanwhile would
    /// wait for this thread to be run.
    ///
    /// # Safety
    /// Nobody reads or writes the range meanwhile.
    ///
    /// # Errors
    /// It is to be locked, and the system has no memory for it, or does not allow it.
    pub unsafe fn populate(&self, at: usize, bytes: usize) -> io::Result<()> {
        if self.is_locked() {
            return self.lock(at, bytes);
        }
        let start = self.start_of(at, bytes);
        for page in (0..bytes).step_by(self.page_bytes) {
            // SAFETY: in the range, which is the caller's alone; it is mapped, so any byte there
            // may be read and written.
            unsafe {
                let byte = start.add(page);
                byte.write_volatile(byte.read_volatile());
            }
        }
        Ok(())
    }

    /// Is what is in use of it locked?
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed) // set before others know the map, or told late
    }

    /// Locks a range, which becomes memory, contents as they are; and from now on what else becomes
    /// memory by `populate`, until it is given back.
    ///
    /// # Errors
    /// The system refuses (RLIMIT_MEMLOCK), or has no memory for it.
    pub fn lock(&self, at: usize, bytes: usize) -> io::Result<()> {
        // SAFETY: the range lies in the mapping (checked there); no contents change.
        unsafe { mlock(self.start_of(at, bytes).cast(), bytes)? };
        self.is_locked.store(true, Ordering::Relaxed); // as in `is_locked`
        Ok(())
    }

    /// What becomes memory from now on is not locked.
    pub fn lock_no_more(&self) {
        self.is_locked.store(false, Ordering::Relaxed); // as in `is_locked`
    }

    /// Has what will be touched of a range be locked then, where the map is.
    pub fn admit(&self, at: usize, bytes: usize) {
        if self.is_locked() {
            let start = self.start_of(at, bytes);
            // SAFETY: as in `lock`. Refused, it is used all the same, as all is without a lock.
            let _ = unsafe { mlock_with(start.cast(), bytes, MlockFlags::ONFAULT) };
        }
    }

    fn start_of(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "range outside the mapping");
        // SAFETY: the range lies in the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        unmap(self.mapped.0, self.mapped.1);
    }
}

/// Gives back address space of ours that nobody holds a pointer into: the owner is gone, or never
/// handed it out.
fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: within what `new` mapped; as said above.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What the kernel was told of the mapping that holds `address`.
    fn flags_at(address: usize) -> Option<String> {
        let all = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut here = false;
        for line in all.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let range = range.map(|(from, to)| [from, to].map(|at| usize::from_str_radix(at, 16)));
            if let Some([Ok(from), Ok(to)]) = range {
                here = (from..to).contains(&address);
            } else if here && let Some(flags) = line.strip_prefix("VmFlags:") {
                return Some(format!("{flags} "));
            }
        }
        None
    }

    /// The page sizes that arm64 has, planted in turn: this machine's may be neither.
    #[test]
    #[cfg(debug_assertions)]
    fn whole_pages_inside_a_range_are_given_back_and_nothing_beside_it() {
        for page in [16 << 10, 64 << 10] {
            plant_page_bytes(page);
            let map = Map::new(4 * page).unwrap();
            let at = |at: usize| {
                // SAFETY: within the mapping, which is this test's alone.
                unsafe { map.base().as_ptr().add(at) }
            };
            let kept = |from: usize, to: usize| {
                // SAFETY: as above.
                (from..to).step_by(512).filter(|&byte| unsafe { at(byte).read() } == 7).count()
            };
            for (from, bytes, whole) in [
                (0, 4096, 0..0),
                (page, 4096, 0..0),
                (4096, 3 * page, page..3 * page),
                (2 * page - 4096, page + 4096, 2 * page..3 * page),
                (3 * page, page, 3 * page..4 * page),
            ] {
                // SAFETY: as above.
                unsafe { at(0).write_bytes(7, 4 * page) };
                // SAFETY: as above.
                unsafe { map.give_back(from, bytes) };
                let all = kept(0, whole.start) + kept(whole.end, 4 * page);
                let rest = (4 * page - whole.len()) / 512;
                assert_eq!(all, rest, "beside {bytes} bytes from {from} in pages of {page}");
                assert_eq!(kept(whole.start, whole.end), 0, "{bytes} bytes from {from}");
            }
        }
    }

    #[test]
    fn huge_pages_come_only_when_asked_for() {
        let map = Map::new(8 << 20).unwrap();
        let address = map.base().as_ptr() as usize;
        let before = flags_at(address).unwrap();
        assert!(before.contains(" nh ") || !before.contains(" hg "), "{before}");
        map.want_huge(HUGE_BYTES);
        let after = [0, HUGE_BYTES].map(|at| flags_at(address + at).unwrap());
        assert!(!after[0].contains(" nh "), "{after:?}");
        assert_eq!(after[1], before, "behind them");
        map.want_huge(usize::MAX);
        assert_eq!(flags_at(address + HUGE_BYTES).unwrap(), after[0]);
    }
}
