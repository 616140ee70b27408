//! Delays of keystrokes in a stream: from what an application says in a small piece to the peer's
//! word that its application has taken it. The echo of a key comes along with that word.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// A larger piece is no keystroke, in bytes. Chosen: ssh makes less than 100 of one.
const KEY_BYTES_MAX: usize = 256;

/// Keystrokes that are waited for. More at once were not typed.
const WAITING_MAX: usize = 64;

/// Delays of which the share is told: those of the last minutes of typing.
const LAST_MAX: usize = 1000;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Delays {
    /// Ends of keystrokes that were not taken, by position, and when they were said.
    waiting: VecDeque<(u64, Instant)>,
    last: VecDeque<Duration>,
}

impl Delays {
    /// A piece of so many bytes was said, which ends there.
    pub fn on_said(&mut self, bytes: usize, end: u64, now: Instant) {
        if bytes <= KEY_BYTES_MAX && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((end, now));
        }
    }

    /// The peer's application has taken all up to there.
    pub fn on_taken(&mut self, position: u64, now: Instant) {
        while let Some((end, said)) = self.waiting.front().copied()
            && end <= position
        {
            self.waiting.pop_front();
            if self.last.len() == LAST_MAX {
                self.last.pop_front();
            }
            self.last.push_back(now.saturating_duration_since(said));
        }
    }

    /// The delay that 99 of 100 keystrokes keep; `None` before there was one.
    pub fn p99(&self) -> Option<Duration> {
        let mut all: Vec<Duration> = self.last.iter().copied().collect();
        let at = (all.len() * 99).div_ceil(100).checked_sub(1)?;
        Some(*all.select_nth_unstable(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keystrokes_are_told_by_their_size_and_bulk_is_left_out() {
        let (mut delays, began) = (Delays::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(delays.p99(), None);
        for n in 0..100 {
            delays.on_said(36, 36 * (n + 1), at(1000 * n));
            // One of them takes long.
            let delay = if n == 50 { 700 } else { 20 };
            delays.on_taken(36 * (n + 1), at(1000 * n + delay));
        }
        assert_eq!(delays.p99(), Some(Duration::from_millis(20)));
        for _ in 0..2 {
            delays.on_said(36, 4000, at(200_000));
            delays.on_taken(4000, at(200_500));
        }
        assert_eq!(delays.p99(), Some(Duration::from_millis(500)));
        delays.on_said(30_000, 40_000, at(300_000));
        delays.on_taken(40_000, at(400_000));
        assert_eq!(delays.last.len(), 102);
    }

    #[test]
    fn little_is_kept_whatever_comes() {
        let (mut delays, now) = (Delays::default(), Instant::now());
        for n in 1..10_000 {
            delays.on_said(1, n, now);
            if n % 100 == 0 {
                delays.on_taken(n, now);
            }
        }
        assert!(delays.waiting.len() <= WAITING_MAX && delays.last.len() <= LAST_MAX);
    }
}
