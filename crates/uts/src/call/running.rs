//! The calls and clients that a server runs at a time.

use core::future::{Future, pending};
#[cfg(unix)]
use core::pin::Pin;
#[cfg(unix)]
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::task::JoinSet;

/// Calls or clients that run at a time. All are stopped when this is dropped.
pub(super) enum Running {
    /// Each runs as a task of the tokio runtime. One that panics harms no others.
    Tasks(JoinSet<()>),
    /// All run in the task, or the thread, that waits for [`Running::each`]: one goes on after the
    /// other.
    #[cfg(unix)]
    Here(FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>),
}

impl Running {
    /// Nothing, and tasks for what is to come.
    pub fn tasks() -> Self {
        Running::Tasks(JoinSet::new())
    }

    /// Nothing; what is to come runs where it is waited for.
    #[cfg(unix)]
    pub fn here() -> Self {
        Running::Here(FuturesUnordered::new())
    }

    /// True if nothing runs.
    #[cfg(unix)]
    pub fn is_empty(&self) -> bool {
        match self {
            Running::Tasks(all) => all.is_empty(),
            Running::Here(all) => all.is_empty(),
        }
    }

    /// One more.
    pub fn add(&mut self, one: impl Future<Output = ()> + Send + 'static) {
        match self {
            Running::Tasks(all) => drop(all.spawn(one)),
            #[cfg(unix)]
            Running::Here(all) => all.push(Box::pin(one)),
        }
    }

    /// Waits until one has ended, and takes it out; if none runs, for ever.
    pub async fn ended(&mut self) {
        let is_there = match self {
            Running::Tasks(all) => all.join_next().await.is_some(),
            #[cfg(unix)]
            Running::Here(all) => all.next().await.is_some(),
        };
        if !is_there {
            pending().await
        }
    }

    /// Runs what `serve` makes of each that `next` waits for, until there is none.
    pub async fn each<T, N, F>(mut self, next: impl Fn() -> N, serve: impl Fn(T) -> F)
    where
        N: Future<Output = Option<T>>,
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            // Those that have ended go first, so that they do not pile up.
            tokio::select! {
                biased;
                () = self.ended() => {}
                new = next() => match new {
                    Some(new) => self.add(serve(new)),
                    None => return,
                },
            }
        }
    }
}
