//! A server that is not heard, looked for by another connection beside: a connection that is kept
//! for days must not outlive a server that has forgotten it, or has gone elsewhere, for days.

use crate::link::{ConnectOptions, Link, Transport};
use crate::target::Host;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A server that was silent for so long is looked for. Chosen: longer than a hand-over takes.
const SILENT: Duration = Duration::from_secs(120);

/// Pause between two looks, at first and at last: it doubles. Chosen.
const PAUSE_MIN: Duration = Duration::from_secs(30);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Time that one look may take. Chosen.
const TRY_MAX: Duration = Duration::from_secs(30);

/// Looks for the server of a connection whenever it is silent, as long as this is polled. If it is
/// found, the connection is asked whether the server knows it: one that is not answered ends.
pub async fn look<T: Transport>(transport: &T, host: &Host, options: &ConnectOptions, link: &T::Link) {
    let Some(connection) = link.connection() else { return std::future::pending().await };
    let is_found = async || {
        let found = timeout(TRY_MAX, transport.connect(host, options)).await;
        let Ok(Ok(found)) = found else { return false };
        found.close(0, "only looking").await;
        true
    };
    look_by(|| connection.silence(), is_found, || connection.ask_for_answer()).await;
}

async fn look_by(
    silence: impl Fn() -> Option<Duration>,
    mut is_found: impl AsyncFnMut() -> bool,
    ask: impl Fn(),
) {
    let mut pause = PAUSE_MIN;
    loop {
        let silent = silence().unwrap_or_default();
        if silent < SILENT {
            pause = PAUSE_MIN;
            sleep((SILENT - silent).max(PAUSE_MIN)).await;
            continue;
        }
        if is_found().await && silence().is_some_and(|silent| silent >= SILENT) {
            ask();
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::time::Instant;

    /// The server falls silent after 100 s. It is there again, and found, from `back` on.
    async fn looked(heard_again: Option<u64>, back: u64) -> (u32, Vec<u64>) {
        let begun = Instant::now();
        let now = || begun.elapsed().as_secs();
        let (tries, asked) = (Cell::new(0), Cell::new(Vec::new()));
        let silence = || match (now(), heard_again) {
            (..=100, _) => None,
            (now, Some(again)) if now >= again => None,
            (now, _) => Some(Duration::from_secs(now - 100)),
        };
        let is_found = async || {
            tries.set(tries.get() + 1);
            sleep(Duration::from_secs(5)).await;
            now() >= back
        };
        let ask = || {
            let mut all = asked.take();
            all.push(now());
            asked.set(all);
        };
        let _ = timeout(Duration::from_secs(3 * 24 * 3600), look_by(silence, is_found, ask)).await;
        (tries.get(), asked.take())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_that_is_found_is_asked_for_and_no_other() {
        assert_eq!(looked(Some(200), 0).await, (0, Vec::new()), "it was silent for 100 s");
        let (tries, asked) = looked(None, 100_000).await;
        assert!(asked.first().is_some_and(|at| (100_000..100_700).contains(at)), "{:?}", asked.first());
        // Three days of ten minutes each.
        assert!((400..450).contains(&tries), "{tries}");
        let (_, asked) = looked(None, 0).await;
        assert!(asked.first().is_some_and(|at| (220..300).contains(at)), "{:?}", asked.first());
        // While it was looked for it was heard.
        assert_eq!(looked(Some(223), 0).await.1, Vec::<u64>::new());
    }
}
