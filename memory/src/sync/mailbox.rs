//! A bounded mailbox: passes messages from any thread to one thread, the mailbox's owner.
//!
//! Where: columns give connections to each other through mailboxes, outside the path of a request.
//! Invariant: each accepted message is taken out once, in the order of `put`. If the mailbox is
//! full or closed, the sender keeps the message. `put` does not allocate, and `take` allocates only
//! if the vector that it gets is too small. The lock is held only while messages are moved.

use std::mem;

use super::{Mutex, MutexGuard, lock_soon};

/// A mailbox. Any thread may put messages in, and the owner takes all messages out.
#[derive(Debug)]
pub struct Mailbox<T>(Mutex<Inside<T>>);

#[derive(Debug)]
struct Inside<T> {
    messages: Vec<T>,
    messages_max: usize,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    /// Makes a mailbox for at most `messages_max` messages at a time.
    #[must_use]
    pub fn new(messages_max: usize) -> Mailbox<T> {
        let messages = Vec::with_capacity(messages_max);
        Mailbox(Mutex::new(Inside { messages, messages_max, is_closed: false }))
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        lock_soon(&self.0)
    }

    /// Puts `message` in. The caller must then wake the owner, so that the owner calls `take`.
    ///
    /// # Errors
    /// Returns `message` if the mailbox is full or closed.
    pub fn put(&self, message: T) -> Result<(), T> {
        let mut inside = self.lock();
        if inside.is_closed || inside.messages.len() >= inside.messages_max {
            return Err(message);
        }
        inside.messages.push(message);
        Ok(())
    }

    /// Moves all messages into `messages`, which must be empty. The mailbox gets the vector's old
    /// memory. The owner must clear its wake-up flag before this call, so that no wake-up is lost.
    pub fn take(&self, messages: &mut Vec<T>) {
        debug_assert!(messages.is_empty(), "messages left in the vector would be put in again");
        let mut inside = self.lock();
        messages.reserve_exact(inside.messages_max);
        mem::swap(&mut inside.messages, messages);
    }

    /// Closes the mailbox and returns its messages. From now on `put` fails.
    pub fn close(&self) -> Vec<T> {
        let mut inside = self.lock();
        inside.is_closed = true;
        mem::take(&mut inside.messages)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_full_box_and_a_closed_one_give_the_letter_back() {
        let mailbox = Mailbox::new(2);
        assert_eq!([1, 2, 3].map(|message| mailbox.put(message)), [Ok(()), Ok(()), Err(3)]);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2]);
        taken.clear();
        assert_eq!([4, 5, 6].map(|message| mailbox.put(message)), [Ok(()), Ok(()), Err(6)]);
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

    /// A mailbox, and a flag that wakes the mailbox's owner, as an eventfd would.
    #[derive(Clone)]
    struct Owned(Arc<(Mailbox<u32>, AtomicBool)>);

    impl Owned {
        fn new(messages_max: usize) -> Owned {
            Owned(Arc::new((Mailbox::new(messages_max), AtomicBool::new(false))))
        }

        /// Puts messages in and wakes the owner. Returns the sum of the refused messages.
        fn give(&self, messages: [u32; 2]) -> u32 {
            let kept = messages.into_iter().filter(|message| self.0.0.put(*message).is_err()).sum();
            // A swap acts like a write to an eventfd. Release pairs with the Acquire in `look`.
            self.0.1.swap(true, Ordering::Release);
            kept
        }

        /// If the flag is set, takes all messages. Returns the sum of the messages.
        fn look(&self, last: &mut u32) -> u32 {
            let mut taken = Vec::new();
            if self.0.1.swap(false, Ordering::Acquire) {
                self.0.0.take(&mut taken);
            }
            let sorted = taken.iter().all(|message| std::mem::replace(last, *message) < *message);
            assert!(sorted, "{taken:?}");
            taken.into_iter().sum()
        }
    }

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
            assert!(owned.0.0.close().is_empty(), "a message without a wake");
        });
    }

    #[test]
    fn a_letter_that_comes_while_the_owner_stops_is_not_lost() {
        loom::model(|| {
            let owned = Owned::new(3);
            let threads = [[1, 2], [4, 8]].map(|messages| {
                let sender = owned.clone();
                thread::spawn(move || sender.give(messages))
            });
            let closed: u32 = owned.0.0.close().into_iter().sum();
            let kept: u32 = threads.into_iter().map(|it| it.join().unwrap()).sum();
            assert_eq!(kept + closed, 15);
            assert!(owned.0.0.close().is_empty());
        });
    }
}
