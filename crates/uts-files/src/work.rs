//! Work that blocks, for a payer: on a thread that is charged to it.

use super::client::blocking;
use super::error::Fault;
use uts_ledger::{Payer, Resource};

/// Runs what blocks on a thread, as soon as the payer may have one.
pub(super) async fn at_work<T: Send + 'static>(
    payer: &Payer,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let thread = payer.wait(Resource::Threads, 1, 1).await;
    blocking(move || {
        let done = work();
        drop(thread);
        done
    })
    .await
}

/// The same for what keeps a processor busy: for as long as it takes, the payer has a turn.
pub(super) async fn in_turn<T: Send + 'static>(
    payer: &Payer,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let turn = payer.wait(Resource::Processor, 1, 1).await;
    at_work(payer, move || {
        let done = work();
        drop(turn);
        done
    })
    .await
}
