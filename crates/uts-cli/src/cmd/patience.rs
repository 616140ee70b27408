//! How long a command tries to go on by itself.

use std::time::Duration;
use tokio::time::Instant;

/// Before the first try to connect again, and between two: twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Patience with a path or server that is away.
#[derive(Debug)]
pub struct Patience {
    max: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl Patience {
    /// It lasts for `max` from a loss on; zero = no other try.
    pub fn new(max: Duration) -> Patience {
        Patience { max, since: None, pause: PAUSE_MIN }
    }

    /// Content has moved: all begins anew.
    pub fn renew(&mut self) {
        *self = Patience::new(self.max);
    }

    /// How long to wait before the next try; `None` = it is over.
    pub fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let left = self.max.saturating_sub(now - *self.since.get_or_insert(now));
        if left.is_zero() {
            return None;
        }
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Some(pause)
    }

    /// How long it lasts.
    pub fn max(&self) -> Duration {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_lasts_as_long_as_it_was_told() {
        let mut patience = Patience::new(Duration::from_secs(60));
        let begun = Instant::now();
        let mut tries = 0;
        while let Some(pause) = patience.next() {
            assert!((PAUSE_MIN..=PAUSE_MAX).contains(&pause) || pause < PAUSE_MIN);
            tokio::time::sleep(pause).await;
            tries += 1;
        }
        assert_eq!((begun.elapsed(), tries), (Duration::from_secs(60), 10));
        patience.renew();
        assert_eq!(patience.next(), Some(PAUSE_MIN));
        assert_eq!(Patience::new(Duration::ZERO).next(), None);
    }
}
