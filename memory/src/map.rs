//! A range of address space. The system allocates memory for a page when the page is first touched.
//!
//! Where: used by the region, the table of segments, the arena and `Words`.
//! Invariant: a `Map` is private, readable and writable, and does not move. Bytes are zero until
//! they are written. `give_back` returns only whole pages to the system.

#![allow(unsafe_code, reason = "mmap and madvise")]

use crate::sync::{AtomicBool, Ordering};
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock, mlock_with};
use rustix::mm::{mmap_anonymous, munlock, munmap};
use std::{io, ptr::NonNull};

/// Size of a huge page on x86-64. The kernel can use huge pages only in aligned maps.
const HUGE_BYTES: usize = 2 << 20;

/// Size in bytes of the system's pages.
#[must_use]
pub fn page_bytes() -> usize {
    #[cfg(debug_assertions)]
    if let Some(planted) = planted::page_bytes() {
        return planted;
    }
    rustix::param::page_size()
}

/// Makes each map that this thread creates from now on assume pages of `bytes` bytes. For tests.
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
    is_locked: AtomicBool,
    /// True if huge pages were requested.
    wants_huge: AtomicBool,
}

// SAFETY: any thread may use and unmap the range that a `Map` owns. Unsafe code that reads or
// writes through `base` must prove that its accesses are synchronised.
unsafe impl Send for Map {}
// SAFETY: the methods that write or discard mapped bytes (`populate`, `give_back`) are unsafe: the
// caller must prove that no other thread uses the range.
unsafe impl Sync for Map {}

impl Map {
    /// Reserves `bytes` bytes of address space, aligned to `HUGE_BYTES` if `bytes` is at least that
    /// size. The kernel uses small pages until `want_huge` is called.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let page_bytes = page_bytes();
        let align = if bytes < HUGE_BYTES { page_bytes } else { HUGE_BYTES };
        // The system aligns mappings to its pages, so `more` extra bytes suffice to align a map.
        let more = align - rustix::param::page_size().min(align);
        let length = bytes.max(1).checked_next_multiple_of(page_bytes).ok_or_else(too_much)?;
        let whole = length.checked_add(more).ok_or_else(too_much)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address that the kernel chooses replaces no other mapping.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, prot, flags)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(too_much)?;
        let skip = start.as_ptr().align_offset(align);
        // SAFETY: `skip` is at most `more`, and the mapping has `length + more` bytes.
        let base = unsafe { start.add(skip) };
        // SAFETY: `skip + length` is at most `more + length`, the mapping's end.
        let behind = unsafe { base.add(length) };
        // The extra bytes are unmapped, because a limit on address space would count them.
        unmap(start, skip);
        unmap(behind, more - skip);
        let [is_locked, wants_huge] = [AtomicBool::new(false), AtomicBool::new(false)];
        let map = Self { base, bytes, page_bytes, mapped: (base, length), is_locked, wants_huge };
        // Without this advice, the kernel could later use a huge page for a range that was partly
        // given back, and so allocate memory again.
        map.advise(bytes, Advice::LinuxNoHugepage);
        Ok(map)
    }

    /// The address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size in bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Asks the system to use huge pages for the first `bytes` bytes. The system may refuse.
    pub fn want_huge(&self, bytes: usize) {
        self.advise(bytes, Advice::LinuxHugepage);
        self.wants_huge.store(true, Ordering::Relaxed); // orders nothing; see `wants_huge`
    }

    /// True if huge pages were requested.
    #[must_use]
    pub fn wants_huge(&self) -> bool {
        self.wants_huge.load(Ordering::Relaxed) // as in `want_huge`
    }

    fn advise(&self, bytes: usize, advice: Advice) {
        let bytes = bytes.min(self.bytes);
        // SAFETY: the range lies in this mapping, and advice on page sizes changes no contents.
        let advised = unsafe { madvise(self.base.as_ptr().cast(), bytes, advice) };
        // If the system refuses the advice, only speed is lost.
        let _ = advised;
    }

    /// Asks the system to allocate memory of `node`, if the node has free memory, for a range of
    /// whole pages. The pages have no memory yet.
    pub(crate) fn prefer(&self, at: usize, bytes: usize, node: usize) -> io::Result<()> {
        /// `MPOL_PREFERRED` of `linux/mempolicy.h`.
        const PREFERRED: libc::c_long = 1;
        let bits = libc::c_ulong::BITS as usize;
        let mut mask: Vec<libc::c_ulong> = vec![0; node / bits + 1];
        mask[node / bits] = 1 << (node % bits);
        let start = self.start_of(at, bytes);
        // The kernel reads one bit less than the number of bits that `mbind` gets.
        let mask_bits = mask.len() * bits + 1;
        // SAFETY: `start_of` has checked that the range lies in this mapping, and the call changes
        // no contents. The kernel reads all `mask_bits - 1` bits of `mask`.
        let failed = unsafe {
            libc::syscall(libc::SYS_mbind, start, bytes, PREFERRED, mask.as_ptr(), mask_bits, 0_u32)
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives the whole pages within a range back to the system. The bytes of these pages become
    /// zero; other bytes do not change.
    ///
    /// # Safety
    /// No thread reads or writes the range during this call, and none relies on the old contents.
    pub unsafe fn give_back(&self, at: usize, bytes: usize) {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "range outside the mapping");
        // Uses whole pages within the range, because the system rounds lengths up to a page.
        let from = at.next_multiple_of(self.page_bytes);
        let to = (at + bytes) / self.page_bytes * self.page_bytes;
        if from >= to {
            return;
        }
        // SAFETY: `from` is below `to`, which is at most `self.bytes`.
        let start = unsafe { self.base.as_ptr().add(from).cast() };
        if self.is_locked() {
            // If `munlock` fails, the `madvise` below fails too, and the range keeps its memory.
            // SAFETY: the range lies in the mapping, and the call changes no contents.
            let _ = unsafe { munlock(start, to - from) };
        }
        // If `madvise` fails, the range keeps its memory.
        // SAFETY: by the caller's contract, no thread uses the range that contains these pages.
        let _ = unsafe { madvise(start, to - from, Advice::LinuxDontNeed) };
    }
}

impl Map {
    /// Makes the system allocate memory for a range. If `is_locked` is true, also locks the range.
    ///
    /// Without a lock, touches the pages one by one. A single system call (`MADV_POPULATE_WRITE`)
    /// would hold the lock of the address space, for which a column that maps memory would wait.
    ///
    /// # Safety
    /// No thread reads or writes the range during this call.
    ///
    /// # Errors
    /// `is_locked` is true, and the system has no memory for the range or cannot lock it.
    pub unsafe fn populate(&self, at: usize, bytes: usize) -> io::Result<()> {
        if self.is_locked() {
            return self.lock(at, bytes);
        }
        let start = self.start_of(at, bytes);
        for page in (0..bytes).step_by(self.page_bytes) {
            // SAFETY: the byte lies in the range, which is mapped readable and writable. By the
            // caller's contract, no other thread uses the range.
            unsafe {
                let byte = start.add(page);
                byte.write_volatile(byte.read_volatile());
            }
        }
        Ok(())
    }

    /// True if `populate` also locks the range in memory, so that the system does not swap it out.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        // Relaxed, paired with the stores in `lock` and `stop_locking`: the flag orders no other
        // data. A thread that reads an old `false` leaves its range unlocked.
        self.is_locked.load(Ordering::Relaxed)
    }

    /// Populates a range and locks it until it is given back. From now on, `populate` locks ranges.
    ///
    /// # Errors
    /// The system refuses to lock the range (RLIMIT_MEMLOCK), or has no memory for the range.
    pub fn lock(&self, at: usize, bytes: usize) -> io::Result<()> {
        // SAFETY: `start_of` has checked that the range lies in the mapping, and no byte changes.
        unsafe { mlock(self.start_of(at, bytes).cast(), bytes)? };
        self.is_locked.store(true, Ordering::Relaxed); // as in `is_locked`
        Ok(())
    }

    /// From now on, `populate` locks no ranges. Locked ranges stay locked.
    pub fn stop_locking(&self) {
        self.is_locked.store(false, Ordering::Relaxed); // as in `is_locked`
    }

    /// If `is_locked` is true, makes the system lock each page of a range at the page's first use.
    pub fn lock_on_fault(&self, at: usize, bytes: usize) {
        if self.is_locked() {
            let start = self.start_of(at, bytes);
            // If the system refuses, the range is used without being locked.
            // SAFETY: `start_of` has checked that the range lies in the mapping.
            let _ = unsafe { mlock_with(start.cast(), bytes, MlockFlags::ONFAULT) };
        }
    }

    fn start_of(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "range outside the mapping");
        // SAFETY: `at` is at most the mapping's length, by the assertion above.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        unmap(self.mapped.0, self.mapped.1);
    }
}

/// Unmaps a range that `Map::new` mapped. No code uses the range: `new` unmaps only bytes outside
/// of the new map, and `drop` unmaps a map that nobody uses any more.
fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: `new` mapped the range, and no code uses it, as this function's comment shows.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

/// True if the system grants a huge page on request. Must be called before much memory is in use,
/// because the kernel walks through all memory of the process when `smaps` is read.
#[must_use]
pub fn huge_pages_are_given() -> bool {
    let Ok(map) = Map::new(HUGE_BYTES) else { return false };
    map.want_huge(HUGE_BYTES);
    // SAFETY: the byte is the first byte of a mapping that only this function uses.
    unsafe { map.base.as_ptr().write_volatile(1) };
    let huge = smaps_value(map.base.as_ptr().addr(), "AnonHugePages:");
    huge.is_some_and(|huge| huge.split_whitespace().next() != Some("0"))
}

/// Returns the value of `name` in `/proc/self/smaps` for the mapping that contains `address`.
fn smaps_value(address: usize, name: &str) -> Option<String> {
    let all = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut here = false;
    for line in all.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let range = range.map(|(from, to)| [from, to].map(|at| usize::from_str_radix(at, 16)));
        if let Some([Ok(from), Ok(to)]) = range {
            here = (from..to).contains(&address);
        } else if here && let Some(value) = line.strip_prefix(name) {
            return Some(value.to_owned());
        }
    }
    None
}

/// The kernel's two-letter flags (`VmFlags`) of the mapping that contains `address`.
#[cfg(all(test, not(loom)))]
fn flags_at(address: usize) -> Option<String> {
    smaps_value(address, "VmFlags:").map(|flags| format!("{flags} "))
}

/// True if the page at `address` is locked, or will be locked when the page is touched.
#[cfg(all(test, not(loom)))]
pub(crate) fn is_locked(address: usize) -> bool {
    flags_at(address).is_some_and(|flags| flags.contains(" lo "))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_given_where_the_system_gives_them_for_the_asking() {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let is_off = enabled.map_or(true, |enabled| enabled.contains("[never]"));
        assert!(!(is_off && huge_pages_are_given()));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn whole_pages_inside_a_range_are_given_back_and_nothing_beside_it() {
        for page in [16 << 10, 64 << 10] {
            plant_page_bytes(page);
            let map = Map::new(4 * page).unwrap();
            let at = |at: usize| {
                // SAFETY: the byte lies within the mapping, which only this test uses.
                unsafe { map.base().as_ptr().add(at) }
            };
            let kept = |from: usize, to: usize| {
                // SAFETY: the byte lies within the mapping, which only this test uses.
                (from..to).step_by(512).filter(|&byte| unsafe { at(byte).read() } == 7).count()
            };
            for (from, bytes, whole) in [
                (0, 4096, 0..0),
                (page, 4096, 0..0),
                (4096, 3 * page, page..3 * page),
                (2 * page - 4096, page + 4096, 2 * page..3 * page),
                (3 * page, page, 3 * page..4 * page),
            ] {
                // SAFETY: the mapping has four pages, and only this test uses it.
                unsafe { at(0).write_bytes(7, 4 * page) };
                // SAFETY: only this test uses the mapping.
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
        assert_eq!(after[1], before, "behind the requested range");
        map.want_huge(usize::MAX);
        assert_eq!(flags_at(address + HUGE_BYTES).unwrap(), after[0]);
    }
}
