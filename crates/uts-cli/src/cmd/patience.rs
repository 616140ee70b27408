//! Time for which a command tries to go on by itself.

use crate::link::Broken;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use uts_units::show;

/// Before the second try to connect, and between two: twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// With less time than this left, no other try is worth it.
const LEFT_MIN: Duration = Duration::from_millis(100);

/// Patience with a path or server that is away, or not there yet.
#[derive(Debug)]
pub struct Patience {
    max: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl Patience {
    /// It lasts for `max` from the first try or a loss on; zero = no other try.
    pub fn new(max: Duration) -> Patience {
        Patience { max, since: None, pause: PAUSE_MIN }
    }

    /// Content has moved: all begins anew.
    pub fn renew(&mut self) {
        *self = Patience::new(self.max);
    }

    /// Time that it lasts.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Time that is left of it.
    fn left(&mut self) -> Duration {
        let now = Instant::now();
        self.max.saturating_sub(now - *self.since.get_or_insert(now))
    }

    /// Time to wait before the next try; `None` = it is over.
    fn next(&mut self) -> Option<Duration> {
        let left = self.left();
        if left < LEFT_MIN {
            return None;
        }
        let pause = self.pause.min(left / 2);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Some(pause)
    }

    /// Connects: the first try and later ones. Without a connection that was lost, the first try is
    /// made at once. Each try ends with the patience at the latest. `told` hears why a try has
    /// failed that is followed by another, once as long as nothing else is the reason.
    ///
    /// # Errors
    /// What no other try mends; or why the last has failed, which is worth another when there is
    /// patience again.
    pub async fn connect<L>(
        &mut self,
        lost: Option<String>,
        mut attempt: impl AsyncFnMut() -> Result<L, Broken>,
        mut told: impl FnMut(&str),
    ) -> Result<L, Broken> {
        let mut why = lost;
        let (mut is_due, mut last_told) = (why.is_none(), None);
        loop {
            if !std::mem::take(&mut is_due) {
                let Some(pause) = self.next() else { return Err(self.given_up(why)) };
                if why.is_some() && last_told != why {
                    told(why.as_deref().unwrap_or_default());
                    last_told.clone_from(&why);
                }
                sleep(pause).await;
            }
            let left = self.left();
            let tried = if self.max.is_zero() {
                attempt().await
            } else {
                let cut = || self.given_up(why.clone().or(Some("no answer".to_owned())));
                match timeout(left, attempt()).await {
                    Ok(tried) => tried,
                    Err(_) => return Err(cut()),
                }
            };
            match tried {
                Err(broken) if broken.is_worth_retrying => why = Some(broken.why),
                ended => return ended,
            }
        }
    }

    /// There is no time for another try.
    fn given_up(&self, why: Option<String>) -> Broken {
        let why = why.unwrap_or_default();
        let after = format!("given up after {}: ", show::span(self.max));
        let why = if self.max.is_zero() { why } else { after + &why };
        Broken { why, is_worth_retrying: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(why: &str) -> Result<(), Broken> {
        Err(Broken { why: why.to_owned(), is_worth_retrying: true })
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_try_and_later_ones_last_as_long_as_was_told() {
        for lost in [None, Some("no answer".to_owned())] {
            // A try that is quick, and one that takes longer than there is patience.
            for (takes, max) in [(0, 60), (0, 1), (40, 5), (7, 20)] {
                let (begun, max) = (Instant::now(), Duration::from_secs(max));
                let mut tries = 0;
                let attempt = async || {
                    tries += 1;
                    sleep(Duration::from_secs(takes)).await;
                    away("closed")
                };
                let broken = Patience::new(max).connect(lost.clone(), attempt, |_| {}).await.unwrap_err();
                let elapsed = begun.elapsed();
                assert!(elapsed <= max && elapsed > max - 2 * LEFT_MIN, "{elapsed:?} of {max:?}");
                assert!(broken.why.starts_with("given up after ") && broken.is_worth_retrying, "{broken:?}");
                assert!((1..25).contains(&tries), "{tries} tries");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_patience_there_is_one_try_at_first_and_none_after_a_loss() {
        for (lost, expected) in [(None, 1), (Some("lost".to_owned()), 0)] {
            let mut tries = 0;
            let attempt = async || {
                tries += 1;
                sleep(Duration::from_secs(30)).await;
                away("lost")
            };
            let broken = Patience::new(Duration::ZERO).connect(lost, attempt, |_| {}).await.unwrap_err();
            assert_eq!((tries, broken.why.as_str()), (expected, "lost"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_told_once_and_what_no_try_mends_ends_it() {
        let mut reasons = ["absent", "absent", "closed", "absent"].into_iter();
        let mut said = Vec::new();
        let attempt = async || match reasons.next() {
            Some(why) => away(why),
            None => Err(Broken::for_good("refused")),
        };
        let tell = |why: &str| said.push(why.to_owned());
        let broken = Patience::new(Duration::MAX).connect(None, attempt, tell).await.unwrap_err();
        assert_eq!(broken, Broken::for_good("refused"));
        assert_eq!(said, ["absent", "closed", "absent"]);
    }
}
