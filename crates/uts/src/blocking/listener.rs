//! Accepting connections.

use super::{Carrier, Connection};
use crate::driver::Host;
use crate::early::EarlyRequest;
use crate::fingerprint::Fingerprint;
use crate::listener::{ListenError, ServerOptions};
use core::fmt;
use std::net::SocketAddr;

/// Accepts connections at an address, in the thread that made it. When it is dropped, it accepts no
/// more. Accepted connections go on.
pub struct Listener {
    pub(super) inner: crate::Listener,
    pub(super) carrier: Carrier,
}

impl Listener {
    /// Accepts connections at `addr`; `[::]:port` takes IPv4 as well.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(addr: SocketAddr, options: ServerOptions) -> Result<Self, ListenError> {
        let inner = crate::Listener::bind_on(Host::Thread, addr, options)?;
        Ok(Listener { inner, carrier: Carrier::here() })
    }

    /// Waits for the next connection, whose handshake is done. It may have ended again already.
    /// What it brought is there to be read. `None` once the listener is closed, or its socket has
    /// failed.
    pub fn accept(&self) -> Option<Connection> {
        let connection = self.carrier.wait(self.inner.accept())?;
        Some(Connection::new(connection, self.carrier.clone()))
    }

    /// Waits for the next early request, as [`crate::Listener::early_request`] says.
    pub fn early_request(&self) -> Option<EarlyRequest> {
        self.carrier.wait(self.inner.early_request())
    }

    /// Accepts no more connections. Those that wait to be accepted are closed. Accepted connections
    /// go on.
    pub fn close(&self) {
        self.carrier.act(|| self.inner.close());
    }

    /// Where it listens: the port, if any was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    /// Fingerprint by which clients know this server.
    pub fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
