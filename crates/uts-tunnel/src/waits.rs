//! Waits that may have no end, and waits for either of two.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tokio::time::{Instant, sleep_until};

/// Waits until an instant; for ever if there is none.
pub async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Result of the one of two that is done first.
pub enum Either<A, B> {
    /// The first of them.
    First(A),
    /// The second.
    Second(B),
}

/// Waits for either of two, which take turns in being polled first: the first may use up all that a
/// task may do at once. Chance has no part in it, so that the same seed is the same run.
pub async fn in_turns<A, B>(
    mut first: Pin<&mut impl Future<Output = A>>,
    mut second: Pin<&mut impl Future<Output = B>>,
) -> Either<A, B> {
    let mut is_odd = false;
    poll_fn(|cx| {
        is_odd = !is_odd;
        if !is_odd && let Poll::Ready(ended) = second.as_mut().poll(cx) {
            return Poll::Ready(Either::Second(ended));
        }
        if let Poll::Ready(ended) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(ended));
        }
        if is_odd { second.as_mut().poll(cx).map(Either::Second) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::coop::consume_budget;

    async fn greedy() {
        loop {
            consume_budget().await;
        }
    }

    async fn modest() {
        for _ in 0..3 {
            consume_budget().await;
        }
    }

    #[tokio::test]
    async fn one_that_takes_all_that_a_task_may_do_does_not_keep_the_other_waiting() {
        let (first, second) = (std::pin::pin!(greedy()), std::pin::pin!(modest()));
        assert!(matches!(in_turns(first, second).await, Either::Second(())));
        let (first, second) = (std::pin::pin!(modest()), std::pin::pin!(greedy()));
        assert!(matches!(in_turns(first, second).await, Either::First(())));
    }
}
