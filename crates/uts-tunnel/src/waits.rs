//! Waits that may have no end.

use tokio::time::{Instant, sleep_until};

/// Waits until an instant; for ever if there is none.
pub async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
