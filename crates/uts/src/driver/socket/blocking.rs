//! Receiving by a call that blocks: for threads that carry their endpoints.

use super::Socket;
use super::buffers::Received;
use super::readiness::Readiness;
use core::task::Poll;
use core::time::Duration;
use std::io;
use std::os::fd::BorrowedFd;

/// Time for which a call polls the network interface before it sleeps. A batch takes 200 us to come
/// at 2.6 Gbit/s, and 50 at 10 Gbit/s.
const BUSY_POLL: Duration = Duration::from_micros(100);

/// Behaviour of the socket's calls where there is nothing to receive.
#[derive(Debug, Default)]
pub(super) struct Blocking {
    /// They block; else they say so at once.
    blocks: bool,
    /// For how long, if they do; `None` = for ever.
    timeout: Option<Duration>,
    /// They have the kernel poll the network interface meanwhile.
    busy_polls: bool,
}

impl Blocking {
    /// Has calls block, for so long at most.
    fn begin(&mut self, io: &Readiness, timeout: Duration) -> io::Result<()> {
        if self.timeout != Some(timeout) {
            io.set_timeout(timeout)?;
            self.timeout = Some(timeout);
        }
        if !self.blocks {
            io.set_blocking(true)?;
            self.blocks = true;
        }
        Ok(())
    }

    /// Has calls end at once.
    pub fn end(&mut self, io: &Readiness) -> io::Result<()> {
        if self.blocks {
            io.set_blocking(false)?;
            self.blocks = false;
        }
        Ok(())
    }
}

impl Socket {
    /// Blocks until a datagram arrives, or some that came together, for so long at most, and hands
    /// them over. Says whether there may be more.
    pub fn receive_within(
        &mut self,
        timeout: Duration,
        each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        self.blocking.begin(&self.io, timeout)?;
        // Of several buffers all would be waited for.
        self.receive(1, each)
    }

    /// Has calls that block have the kernel poll the network interface, for a while before they
    /// sleep, or not.
    ///
    /// # Errors
    /// The system does not let this process do so.
    pub fn set_busy_polling(&mut self, busy_polls: bool) -> io::Result<()> {
        if busy_polls != self.blocking.busy_polls {
            self.io.set_busy_poll(if busy_polls { BUSY_POLL } else { Duration::ZERO })?;
            self.blocking.busy_polls = busy_polls;
        }
        Ok(())
    }

    /// For how long calls that block poll the interface, in microseconds.
    #[cfg(all(test, target_os = "linux"))]
    pub fn busy_poll(&self) -> io::Result<u32> {
        self.io.plain().busy_poll()
    }

    /// Descriptor to wait for where no call to receive may block.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.io.fd()
    }
}
