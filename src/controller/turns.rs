//! How many passes are made at a time, and who is next.
//!
//! Each pass holds the objects that it read, so memory bounds them. Who waits is
//! served in the order of coming: the runtime's own bound takes any of those that
//! wait, and some plans then wait for as long as others have events. A few turns
//! are kept for plans that must not wait, so that a way back does not stand behind
//! the progress of others.

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Passes at a time.
const TURNS: usize = 16;
/// Further ones for plans that must not wait.
const HURRIED: usize = 8;

/// The turns that there are.
#[derive(Debug)]
pub(super) struct Turns {
    any: Semaphore,
    hurried: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            any: Semaphore::new(TURNS),
            hurried: Semaphore::new(HURRIED),
        }
    }
}

impl Turns {
    /// Waits for a turn, which ends when the answer is dropped. Once `hurry` is
    /// notified it must not wait.
    pub(super) async fn take(&self, hurry: &Notify) -> Option<SemaphorePermit<'_>> {
        let mut any = std::pin::pin!(self.any.acquire());
        let turn = tokio::select! {
            biased;
            turn = &mut any => turn,
            () = hurry.notified() => tokio::select! {
                biased;
                turn = any => turn,
                turn = self.hurried.acquire() => turn,
            },
        };
        // Neither is ever closed.
        turn.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn turns_are_bounded_and_some_are_kept_for_who_must_not_wait() {
        let turns = Turns::default();
        let calm = Notify::new();
        let mut taken = Vec::new();
        while let Some(turn) = turns.take(&calm).now_or_never() {
            taken.push(turn);
        }
        assert_eq!(taken.len(), TURNS);
        let hurried = || {
            let hurry = Notify::new();
            hurry.notify_one();
            hurry
        };
        let mut late = Box::pin(turns.take(&calm));
        assert!((&mut late).now_or_never().is_none());
        calm.notify_one();
        let turn = late.now_or_never();
        assert!(turn.is_some(), "what hurries who waits already counts too");
        taken.extend(turn);
        while let Some(turn) = turns.take(&hurried()).now_or_never() {
            taken.push(turn);
        }
        assert_eq!(taken.len(), TURNS + HURRIED);
        let mut first = Box::pin(turns.take(&calm));
        let mut second = Box::pin(turns.take(&calm));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        taken.remove(0);
        assert!((&mut second).now_or_never().is_none(), "first come");
        assert!((&mut first).now_or_never().is_some(), "first served");
    }
}
