//! Address space from the system: reserved at once, backed by memory as it is touched.
//!
//! Where: under the region of segments and the index's words.
//! Invariant: a `Map` is private, readable and writable, zero where never written, and at one
//! address from `new` to `drop`.

#![allow(unsafe_code, reason = "mmap and madvise")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::{io, ptr::NonNull};

/// Huge pages on x86-64; mappings are aligned to it so that the kernel may use them.
const HUGE_BYTES: usize = 2 << 20;

/// An anonymous mapping.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    bytes: usize,
    mapped: (NonNull<u8>, usize),
}

// SAFETY: a `Map` is only an address range; whoever reads or writes through `base` proves for
// himself that it is synchronised.
unsafe impl Send for Map {}
// SAFETY: as for Send; no method of `Map` itself reads or writes the mapped bytes.
unsafe impl Sync for Map {}

impl Map {
    /// Reserves `bytes`, aligned to a huge page, to be backed by small ones.
    ///
    /// # Errors
    /// The system's, when it refuses the address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let whole = bytes.max(1).checked_add(HUGE_BYTES).ok_or_else(too_much)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory of ours.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, prot, flags)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(too_much)?;
        let skip = start.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: `skip` is below HUGE_BYTES, and the mapping is `bytes + HUGE_BYTES` long.
        let base = unsafe { start.add(skip) };
        let map = Self { base, bytes, mapped: (start, whole) };
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

    /// Gives the memory behind a range back to the system; it reads as zero afterwards.
    ///
    /// # Safety
    /// Nobody reads or writes the range meanwhile, and nobody relies on its contents.
    pub unsafe fn give_back(&self, at: usize, bytes: usize) {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "range outside the mapping");
        let give = |advice| {
            // SAFETY: the range lies in the mapping (checked above); the caller vouches that nobody
            // uses it.
            unsafe { madvise(self.base.as_ptr().add(at).cast(), bytes, advice) }
        };
        // What is locked (`-k`) is another call's; kernels before 5.18 do not have it, and then the
        // memory stays ours.
        let given = give(Advice::LinuxDontNeed).or_else(|_| give(Advice::LinuxDontneedLocked));
        let _ = given;
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped; the owner is gone, so nobody holds a pointer into it.
        let unmapped = unsafe { munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
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
