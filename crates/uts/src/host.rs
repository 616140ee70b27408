//! Who carries an endpoint, and waits with it.

use crate::clock::Clock;
use crate::driver::Driver;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;

/// Where an endpoint has its turns, and where what it needs beside them is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// In a task of the tokio runtime that it is made in.
    Runtime,
    /// In the thread that it is made in, while that waits for something: see [`crate::blocking`].
    #[cfg(unix)]
    Thread,
}

impl Host {
    /// By which an endpoint tells the time.
    pub fn clock(self) -> Clock {
        match self {
            Host::Runtime => Clock::start(),
            #[cfg(unix)]
            Host::Thread => crate::driver::thread::clock(),
        }
    }

    /// Has the endpoint's turns come.
    ///
    /// # Errors
    /// There is no runtime.
    pub fn start(self, driver: Driver) -> io::Result<()> {
        match self {
            Host::Runtime => {
                drop(tokio::runtime::Handle::try_current().map_err(io::Error::other)?.spawn(driver))
            }
            #[cfg(unix)]
            Host::Thread => crate::driver::thread::adopt(driver),
        }
        Ok(())
    }

    /// The addresses of a host.
    pub async fn resolve(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self {
            Host::Runtime => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
            #[cfg(unix)]
            Host::Thread => Ok(std::net::ToSocketAddrs::to_socket_addrs(&(host, port))?.collect()),
        }
    }

    /// Waits for so long.
    pub async fn sleep(self, duration: Duration) {
        match self {
            Host::Runtime => tokio::time::sleep(duration).await,
            #[cfg(unix)]
            Host::Thread => crate::driver::thread::sleep(duration).await,
        }
    }

    /// Does what may block where it may.
    ///
    /// # Errors
    /// It has failed, or the runtime is going down.
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
