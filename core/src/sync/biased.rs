//! A mutex that is biased to the one thread that uses it: for that thread, taking it is a few loads and stores.
//!
//! Each thread has a [`ThreadSlot`], one word that says which biased mutex it is inside of; nobody else writes it. A mutex names
//! the slot that it *is biased to*. The thread of that slot enters by writing the mutex into the slot and then looking
//! whether it still owns the bias; it leaves by clearing the slot. Every other thread takes the lock behind it, *revokes* the
//! bias and then looks whether the bias owner is inside: if so, it waits until the owner has left.
//!
//! | word | says | changes by | keeps |
//! |---|---|---|---|
//! | `ThreadSlot::at` | the mutex that its thread is inside of, or is looking at | its thread alone | O4 |
//! | `biased_to` | the slot that enters without the lock, or nobody's | holders of the lock | O4 |
//! | `Bias::slot` | the slot that may still be inside | holders of the lock | O4 |
//!
//! # Why two threads are never inside at once
//! The owner writes its slot (a), passes a barrier, and reads `biased_to` (b). A revoker writes `biased_to` (c), passes
//! a barrier, and reads the slot (d). Of the two barriers one comes first. If the owner's: d reads a, or what was written
//! later. If the revoker's: b reads c, or what was written later; a thread becomes the owner by its own act alone, so it does
//! not enter. So an owner that entered is seen inside, or to have left since. What it did inside comes before
//! what the revoker does, since each write to its slot is a release (E6.enter, E6.leave) and d acquires (E6.look).
//! Holders of the lock follow each other by the lock. A holder gives the bias to itself, so what was done before
//! under the lock comes before what it does without it.
//!
//! The barriers are unlike: the owner's only keeps the compiler from reordering, since the revoker's is passed by the system
//! on all processors that run this process ([`Barrier`]). Where the system has none, no thread ever owns a bias.
//!
//! The race that looks wrong: a slot is written by a thread that is no owner at all, and looks inside for a moment.
//! It then goes away by itself, without waiting for anything; a revoker waits a moment longer.
//!
//! # Whom it is biased to
//! The first who takes it; and the first after it was [released](Biased::release_bias). After a revocation, whoever has taken it
//! [`PATIENCE`] times in a row: a revocation costs about a microsecond, so a mutex that threads take turns at stays an
//! ordinary one.

use std::marker::PhantomData;

use super::atomic::{AtomicUsize, Ordering};
use super::{Barrier, Guarded, Inside, Mutex, MutexGuard, SlotRef, slot, thread};
use crate::sync::ordering;

/// How often in a row a thread takes the lock before it owns the bias, once a bias was revoked.
pub const PATIENCE: u32 = if cfg!(any(mc_loom, mc_shuttle)) { 2 } else { 1024 };

const NOBODY: usize = 0;
const NOWHERE: usize = 0;

/// A thread's word: which biased mutex it is inside of. It is written twice each turn, so it shares no cache line, nor the
/// one beside, which processors fetch along.
#[derive(Debug)]
#[repr(align(128))]
pub struct ThreadSlot {
    at: AtomicUsize,
}

impl ThreadSlot {
    /// Nowhere.
    pub fn new() -> Self {
        Self { at: AtomicUsize::new(NOWHERE) }
    }
}

impl Default for ThreadSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// A mutex biased to one thread. At most one thread at a time has a guard.
#[derive(Debug)]
pub struct Biased<T> {
    biased_to: AtomicUsize,
    barrier: Barrier,
    value: Guarded<T>,
    // Lock order: its holder takes no other lock, but what it takes as holder of the whole mutex.
    bias: Mutex<Bias>,
}

/// What only holders of the lock touch.
#[derive(Debug)]
struct Bias {
    /// The slot whose thread may still be inside without the lock. Stays after a revocation, until that was seen elsewhere.
    slot: Option<SlotRef>,
    /// Who took the lock last, and how often in a row.
    last: usize,
    streak: u32,
    patience: u32,
}

/// Proof that a [`Biased`] mutex is held.
#[derive(Debug)]
pub struct BiasedGuard<'a, T> {
    // Dropped in this order: first what is inside, then the hold.
    value: Inside<'a, T>,
    hold: Hold<'a>,
}

/// Held for its end.
#[derive(Debug)]
enum Hold<'a> {
    Owner { _at: InSlot },
    Locked { _bias: MutexGuard<'a, Bias> },
}

/// A stay inside by the thread's slot. Not to be sent: the slot is the thread's.
#[derive(Debug)]
struct InSlot(SlotRef, PhantomData<*const ()>);

impl Drop for InSlot {
    #[inline]
    fn drop(&mut self) {
        // E6.leave: Release; pairs with E6.look. Who finds the slot empty comes after what was done inside.
        self.0.at.store(NOWHERE, ordering!("E6.leave", Release));
    }
}

impl<T> Biased<T> {
    /// A free mutex that is biased to no thread yet.
    pub fn new(value: T) -> Self {
        Self {
            biased_to: AtomicUsize::new(NOBODY),
            barrier: Barrier::new(),
            value: Guarded::new(value),
            bias: Mutex::new(Bias { slot: None, last: NOBODY, streak: 0, patience: 1 }),
        }
    }

    /// Takes it, waiting for whoever holds it.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        match self.lock_biased() {
            Some(guard) => guard,
            None => self.lock_revoking(),
        }
    }

    /// Takes it if it is biased to the calling thread, and that is nowhere else.
    #[inline]
    pub fn lock_biased(&self) -> Option<BiasedGuard<'_, T>> {
        self.enter().map(|slot| self.guard(Hold::Owner { _at: slot }))
    }

    /// Takes it; but if it is held and `refuse` says so, does not wait for it.
    #[inline]
    pub fn lock_or(&self, refuse: impl Fn() -> bool) -> Option<BiasedGuard<'_, T>> {
        match self.lock_biased() {
            Some(guard) => Some(guard),
            None => self.lock_revoking_or(refuse),
        }
    }

    /// Gives up the calling thread's bias, if it has that and is not inside, so that the next to come owns the bias at
    /// once. That takes no barrier, since only this thread could have entered by it; and it waits for nobody.
    pub fn release_bias(&self) {
        let Some(slot) = slot::current() else { return };
        // Relaxed: as in `enter`.
        let is_biased = || self.biased_to.load(Ordering::Relaxed) == slot.identity();
        if !is_biased() || self.is_mine() {
            return;
        }
        let Some(mut bias) = self.bias.try_lock() else { return };
        if !is_biased() {
            return;
        }
        // Relaxed: as in `revoke`.
        self.biased_to.store(NOBODY, Ordering::Relaxed);
        (bias.slot, bias.patience) = (None, 1);
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    fn guard<'a>(&'a self, hold: Hold<'a>) -> BiasedGuard<'a, T> {
        // SAFETY: O4. A hold means that nobody else has one: the module's documentation argues it.
        let value = unsafe { self.value.inside() };
        BiasedGuard { value, hold }
    }

    /// Enters by the thread's slot, if it owns the bias and is nowhere else.
    #[inline]
    fn enter(&self) -> Option<InSlot> {
        let slot = slot::current()?;
        // Relaxed: only this thread writes it.
        if slot.at.load(Ordering::Relaxed) != NOWHERE {
            return None;
        }
        // E6.enter: Release; pairs with E6.look. A revoker of the mutex that this thread was in before may read this.
        slot.at.store(self.address(), ordering!("E6.enter", Release));
        self.barrier.owner();
        let entered = InSlot(slot, PhantomData);
        // Relaxed: it says "this slot" only if this thread wrote that, and it did so as a holder.
        (self.biased_to.load(Ordering::Relaxed) == entered.0.identity()).then_some(entered)
    }

    #[cold]
    fn lock_revoking(&self) -> BiasedGuard<'_, T> {
        let mut bias = self.bias.lock();
        self.revoke(&mut bias, || false);
        self.guard(self.hold(bias))
    }

    #[cold]
    fn lock_revoking_or(&self, refuse: impl Fn() -> bool) -> Option<BiasedGuard<'_, T>> {
        // A thread that asks for what it is inside of keeps the bias.
        if self.is_mine() && refuse() {
            return None;
        }
        let mut bias = self.bias.lock_or(&refuse)?;
        self.revoke(&mut bias, refuse).then(|| self.guard(self.hold(bias)))
    }

    fn is_mine(&self) -> bool {
        // Relaxed: only this thread writes its slot.
        slot::current().is_some_and(|slot| slot.at.load(Ordering::Relaxed) == self.address())
    }

    /// Revokes the bias and waits until nobody is inside on the strength of it; `false`: refused to wait.
    fn revoke(&self, bias: &mut Bias, refuse: impl Fn() -> bool) -> bool {
        let Some(slot) = &bias.slot else { return true };
        // Relaxed both: only holders of the lock write it; for the bias owner the barriers order it.
        if self.biased_to.load(Ordering::Relaxed) != NOBODY {
            self.biased_to.store(NOBODY, Ordering::Relaxed);
            self.barrier.revoker();
        }
        let mut tries = 0;
        // E6.look: Acquire; pairs with E6.leave and E6.enter.
        while slot.at.load(ordering!("E6.look", Acquire)) == self.address() {
            if refuse() {
                return false;
            }
            thread::pause_brief(&mut tries);
        }
        bias.slot = None;
        true
    }

    /// The hold of the holder of the lock, when no other thread is inside: by its slot from now on, if it is to own the bias.
    fn hold<'a>(&'a self, mut bias: MutexGuard<'a, Bias>) -> Hold<'a> {
        let Some(slot) = slot::take() else { return Hold::Locked { _bias: bias } };
        if bias.last != slot.identity() {
            (bias.last, bias.streak) = (slot.identity(), 0);
        }
        bias.streak += 1;
        // Relaxed: only this thread writes its slot.
        let is_free = slot.at.load(Ordering::Relaxed) == NOWHERE;
        if bias.streak < bias.patience || !is_free || !self.barrier.is_there() {
            return Hold::Locked { _bias: bias };
        }
        (bias.last, bias.streak, bias.patience) = (NOBODY, 0, PATIENCE);
        bias.slot = Some(SlotRef::clone(&slot));
        // E6.enter: as in `enter`.
        slot.at.store(self.address(), ordering!("E6.enter", Release));
        // Relaxed: for others the lock orders it.
        self.biased_to.store(slot.identity(), Ordering::Relaxed);
        Hold::Owner { _at: InSlot(slot, PhantomData) }
    }
}

impl<T: Default> Default for Biased<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Whether it is held without the lock.
    pub fn is_biased(guard: &Self) -> bool {
        matches!(guard.hold, Hold::Owner { .. })
    }
}

impl<T> std::ops::Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> std::ops::DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a turn of another thread's is by its bias.
    fn elsewhere(mutex: &Biased<u32>) -> bool {
        std::thread::scope(|scope| scope.spawn(|| turn(mutex)).join().expect("it does not panic"))
    }

    /// Whether a turn of this thread's is by its bias.
    fn turn(mutex: &Biased<u32>) -> bool {
        let mut guard = mutex.lock();
        *guard += 1;
        BiasedGuard::is_biased(&guard)
    }

    /// Whether anybody ever owns a bias here: not where the system has no barrier.
    fn has_bias() -> bool {
        Barrier::new().is_there()
    }

    #[test]
    fn the_first_is_biased_and_after_a_revocation_who_comes_again_and_again() {
        let mutex = Biased::new(0);
        assert_eq!([turn(&mutex), turn(&mutex)], [has_bias(); 2], "the first who takes it");
        assert!(!elsewhere(&mutex), "a bias that was revoked is given to nobody at once");
        for _ in 1..PATIENCE {
            assert!(!turn(&mutex), "not before its patience is at its end");
        }
        assert_eq!([turn(&mutex), turn(&mutex)], [has_bias(); 2], "who took it so often in a row");
    }

    #[test]
    fn who_takes_turns_is_not_biased() {
        let (mutex, turnstile) = (Biased::new(0), std::sync::Barrier::new(2));
        turn(&mutex);
        let every_other = |first: bool| {
            let turns = (0..2 * PATIENCE).filter(|round| {
                turnstile.wait();
                (round % 2 == 0) == first && turn(&mutex)
            });
            turns.count()
        };
        let owner = std::thread::scope(|scope| {
            let other = scope.spawn(|| every_other(true));
            every_other(false) + other.join().expect("it does not panic")
        });
        assert_eq!(owner, 0, "each begins anew");
    }

    #[test]
    fn who_releases_it_leaves_it_as_new() {
        let mutex = Biased::new(0);
        turn(&mutex);
        mutex.release_bias();
        assert_eq!(elsewhere(&mutex), has_bias(), "the next to come owns the bias at once");
        mutex.release_bias();
        assert!(!turn(&mutex), "whoever has no bias gives none up");
    }

    #[test]
    fn who_is_inside_does_not_release_it() {
        let mutex = Biased::new(0);
        let guard = mutex.lock();
        mutex.release_bias();
        let is_let_in = std::thread::scope(|scope| {
            let other = scope.spawn(|| mutex.lock_or(|| true).is_some());
            other.join().expect("it does not panic")
        });
        assert!(!is_let_in, "O4: nobody beside him");
        drop(guard);
    }

    #[test]
    fn who_asks_from_inside_keeps_the_bias() {
        let mutex = Biased::new(0);
        let guard = mutex.lock();
        assert!(mutex.lock_or(|| true).is_none(), "it is held, and not waited for");
        drop(guard);
        assert_eq!(turn(&mutex), has_bias(), "the bias was not revoked");
        assert!(mutex.lock_or(|| true).is_some(), "it is free");
    }

    #[test]
    fn an_inner_one_is_not_biased() {
        let (outer, inner) = (Biased::new(0), Biased::new(0));
        let guard = outer.lock();
        assert!(!turn(&inner) || !has_bias(), "a thread has one slot");
        drop(guard);
        assert_eq!(turn(&inner), has_bias());
    }
}
