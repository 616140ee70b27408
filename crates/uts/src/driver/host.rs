//! Carrier of an endpoint: a task of tokio, or the thread that made it.

use super::Driver;
use super::task::Task;
#[cfg(unix)]
use super::thread;
use crate::clock::Clock;
use core::future::Future;
#[cfg(unix)]
use core::future::poll_fn;
#[cfg(unix)]
use core::pin::pin;
#[cfg(unix)]
use core::task::Poll;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use tokio::time::Instant;

/// Where the turns of an endpoint run, and where its other work is done: waiting, resolving,
/// blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// The turns run in a task of the tokio runtime that the endpoint is made in.
    Runtime,
    /// The turns run in the thread that the endpoint is made in, while the thread waits for
    /// something: see [`crate::blocking`].
    #[cfg(unix)]
    Thread,
}

/// True if endpoints of this thread are in a simulated network.
pub(crate) fn is_simulated() -> bool {
    #[cfg(any(test, feature = "simulation"))]
    let is = crate::simulation::Network::current().is_some();
    #[cfg(not(any(test, feature = "simulation")))]
    let is = false;
    is
}

impl Host {
    /// The clock of the endpoint.
    pub fn clock(self) -> Clock {
        match self {
            Host::Runtime => Clock::start(),
            #[cfg(unix)]
            Host::Thread => thread::clock(),
        }
    }

    /// Starts the turns of the endpoint. They come until the endpoint ends.
    ///
    /// # Errors
    /// [`Host::Runtime`] outside a runtime.
    pub(super) fn start(self, driver: Driver) -> io::Result<()> {
        match self {
            Host::Runtime => drop(
                tokio::runtime::Handle::try_current().map_err(io::Error::other)?.spawn(Task::new(driver)),
            ),
            #[cfg(unix)]
            Host::Thread => thread::adopt(driver),
        }
        Ok(())
    }

    /// Resolves a host name to its addresses.
    ///
    /// # Errors
    /// Those of the system's resolver.
    pub async fn resolve(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = crate::simulation::Network::current() {
            return network.resolve(host, port);
        }
        match self {
            Host::Runtime => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
            #[cfg(unix)]
            Host::Thread => Ok(std::net::ToSocketAddrs::to_socket_addrs(&(host, port))?.collect()),
        }
    }

    /// Sleeps for `duration`.
    pub async fn sleep(self, duration: Duration) {
        match self {
            Host::Runtime => tokio::time::sleep(duration).await,
            #[cfg(unix)]
            Host::Thread => thread::sleep(duration).await,
        }
    }

    /// Waits for a future, but not beyond an instant; `None` = that came first.
    pub async fn before<T>(self, until: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
        let Some(until) = until else { return Some(future.await) };
        match self {
            Host::Runtime => tokio::time::timeout_at(until, future).await.ok(),
            #[cfg(unix)]
            Host::Thread => {
                let limit = thread::sleep(until.saturating_duration_since(Instant::now()));
                let (mut future, mut limit) = (pin!(future), pin!(limit));
                poll_fn(|cx| match future.as_mut().poll(cx) {
                    Poll::Ready(result) => Poll::Ready(Some(result)),
                    Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
                })
                .await
            }
        }
    }

    /// Waits for a future, for so long at most; `None` = it was not there by then.
    pub async fn within<T>(self, most: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.before(Instant::now().checked_add(most), future).await
    }

    /// Runs work that may block, where blocking disturbs nobody.
    ///
    /// # Errors
    /// The work has panicked, or the runtime is shutting down.
    pub async fn unblock<R: Send + 'static>(
        self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, String> {
        match self {
            Host::Runtime => tokio::task::spawn_blocking(work).await.map_err(|e| e.to_string()),
            #[cfg(unix)]
            Host::Thread => Ok(work()),
        }
    }
}
