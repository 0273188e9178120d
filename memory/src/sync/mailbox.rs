//! A bounded mailbox: hands things from any thread to one thread.
//!
//! Where: beside the path of a request; columns hand connections to each other.
//! Invariant: a thing that was put in is taken out once, and in the order of putting. A thing that
//! cannot be put in stays with its sender: when the box is full, and when its owner takes no more.
//! Nothing allocates after `new`, and the lock is held while a few bytes are moved or two pointers
//! swapped.

use std::mem;

use super::{Mutex, MutexGuard, lock_soon};

/// A mailbox. Any thread puts things in; its owner takes them all out.
#[derive(Debug)]
pub struct Mailbox<T>(Mutex<Inside<T>>);

#[derive(Debug)]
struct Inside<T> {
    letters: Vec<T>,
    letters_max: usize,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    /// Makes a mailbox for at most `letters_max` things at a time.
    #[must_use]
    pub fn new(letters_max: usize) -> Mailbox<T> {
        let letters = Vec::with_capacity(letters_max);
        Mailbox(Mutex::new(Inside { letters, letters_max, is_closed: false }))
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        lock_soon(&self.0)
    }

    /// Puts `letter` in. The caller must wake the owner afterwards, who looks once per wake.
    ///
    /// # Errors
    /// Returns `letter` if there is no room, or if the mailbox is closed.
    pub fn put(&self, letter: T) -> Result<(), T> {
        let mut inside = self.lock();
        if inside.is_closed || inside.letters.len() >= inside.letters_max {
            return Err(letter);
        }
        inside.letters.push(letter);
        Ok(())
    }

    /// Takes all out, into the empty `letters`, whose memory the box uses from now on. Call it
    /// after clearing the wake, so that a later `put` wakes the owner again.
    pub fn take(&self, letters: &mut Vec<T>) {
        debug_assert!(letters.is_empty(), "what is there would be put in again");
        let mut inside = self.lock();
        letters.reserve_exact(inside.letters_max);
        mem::swap(&mut inside.letters, letters);
    }

    /// Takes all out for the last time; from now on `put` fails.
    pub fn close(&self) -> Vec<T> {
        let mut inside = self.lock();
        inside.is_closed = true;
        mem::take(&mut inside.letters)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_full_box_and_a_closed_one_give_the_letter_back() {
        let mailbox = Mailbox::new(2);
        assert_eq!([1, 2, 3].map(|letter| mailbox.put(letter)), [Ok(()), Ok(()), Err(3)]);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2]);
        taken.clear();
        assert_eq!([4, 5, 6].map(|letter| mailbox.put(letter)), [Ok(()), Ok(()), Err(6)]);
        assert_eq!(mailbox.close(), [4, 5]);
        assert_eq!(mailbox.put(7), Err(7));
        mailbox.take(&mut taken);
        assert_eq!(taken, []);
    }
}

#[cfg(all(test, loom))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod under_loom {
    use super::*;
    use crate::sync::{AtomicBool, Ordering};
    use loom::sync::Arc;
    use loom::thread;

    /// A mailbox, and the flag that wakes its owner, like an eventfd.
    #[derive(Clone)]
    struct Owned(Arc<(Mailbox<u32>, AtomicBool)>);

    impl Owned {
        fn new(letters_max: usize) -> Owned {
            Owned(Arc::new((Mailbox::new(letters_max), AtomicBool::new(false))))
        }

        /// Gives letters like a column; returns the sum of those that the box does not take.
        fn give(&self, letters: [u32; 2]) -> u32 {
            let kept = letters.into_iter().filter(|letter| self.0.0.put(*letter).is_err()).sum();
            // In one step, like an eventfd counts. Release pairs with the Acquire of `look`; the
            // real system calls order more.
            self.0.1.swap(true, Ordering::Release);
            kept
        }

        /// Looks like a woken column: returns the sum of the letters taken, 0 if it was not woken.
        fn look(&self, last: &mut u32) -> u32 {
            let mut taken = Vec::new();
            if self.0.1.swap(false, Ordering::Acquire) {
                self.0.0.take(&mut taken);
            }
            // Each sender's letters arrive in order; here there is one sender.
            let sorted = taken.iter().all(|letter| std::mem::replace(last, *letter) < *letter);
            assert!(sorted, "{taken:?}");
            taken.into_iter().sum()
        }
    }

    /// In every interleaving each letter is taken once, in order, or kept by its sender; and
    /// nothing is left after the last wake.
    #[test]
    fn a_letter_is_taken_once_and_no_wake_is_lost() {
        loom::model(|| {
            let owned = Owned::new(2);
            let sender = owned.clone();
            let thread = thread::spawn(move || sender.give([1, 2]) + sender.give([4, 8]));
            let (mut last, mut taken) = (0, 0);
            (0..2).for_each(|_| taken += owned.look(&mut last));
            let kept = thread.join().unwrap();
            taken += owned.look(&mut last);
            assert_eq!(kept + taken, 15, "{kept} kept, {taken} taken");
            assert!(owned.0.0.close().is_empty(), "what nobody was woken for");
        });
    }

    /// The owner closes the box while two senders put letters in: each letter is with one of the
    /// three.
    #[test]
    fn a_letter_that_comes_while_the_owner_stops_is_not_lost() {
        loom::model(|| {
            let owned = Owned::new(3);
            let threads = [[1, 2], [4, 8]].map(|letters| {
                let sender = owned.clone();
                thread::spawn(move || sender.give(letters))
            });
            let closed: u32 = owned.0.0.close().into_iter().sum();
            let kept: u32 = threads.into_iter().map(|it| it.join().unwrap()).sum();
            assert_eq!(kept + closed, 15);
            assert!(owned.0.0.close().is_empty());
        });
    }
}
