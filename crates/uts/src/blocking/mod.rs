//! Connections that the thread that uses them carries itself, without a runtime.
//!
//! The same connections, flows and messages as elsewhere in this crate, by calls that wait, as
//! those of [`std::net`] do. There is no task behind them. When a call returns, what it hands over
//! has left, as far as peer and path take it. A call that waits receives from the kernel itself. A
//! short round trip therefore costs less than through a runtime. If data streams in at some Gbit/s,
//! a waiting call polls the network interface meanwhile (`SO_BUSY_POLL` of Linux). It goes on with
//! that only if comparisons show that more arrives.
//!
//! What a thread has opened stays with it (its handles are not [`Send`]), and **lives only while
//! the thread is in a call of this module**. In between nothing is received, acknowledged, repeated
//! or kept alive. Any call that waits carries all connections of the thread. A thread that has
//! connections to keep, but nothing to wait for, calls [`carry`]. If many connections each wait for
//! their own data at once, use a runtime: see [`connect`](crate::connect).
//!
//! ```
//! use std::io::{Read, Write};
//! use uts::blocking::{Listener, connect};
//! use uts::{ConnectOptions, FlowOptions, Identity, ServerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = ServerOptions::new(Identity::generate()?);
//! let (at, told) = std::sync::mpsc::channel();
//! let server = std::thread::spawn(move || {
//!     let listener = Listener::bind(([127, 0, 0, 1], 0).into(), options).expect("an address");
//!     at.send((listener.local_addr(), listener.fingerprint())).expect("a client");
//!     let connection = listener.accept().expect("a client");
//!     let mut flow = connection.accept_flow().expect("a flow");
//!     std::io::copy(flow.recv_half(), &mut std::io::sink()).expect("received");
//!     flow.write_all(b"thanks").expect("sent");
//!     flow.send_half().finished().expect("delivered");
//! });
//!
//! let (target, fingerprint) = told.recv()?;
//! let connection = connect(&target.to_string(), ConnectOptions::pinned(fingerprint))?;
//! let (mut send, mut recv) = connection.open_flow(FlowOptions::default())?.split();
//! send.write_all(b"hello")?;
//! send.finish()?;
//! let mut answer = String::new();
//! recv.read_to_string(&mut answer)?;
//! assert_eq!(answer, "thanks");
//! # server.join().expect("done");
//! # Ok(())
//! # }
//! ```

pub mod call;
mod connection;
mod flow;
mod listener;

pub use connection::{Connection, Events};
pub use flow::{ExpeditedFlow, Flow, RecvFlow, SendFlow};
pub use listener::Listener;

use crate::driver::Host;
use crate::driver::thread::{Thread, sleep};
use crate::endpoint::{ConnectError, ConnectOptions, connect_from};
use core::time::Duration;
use std::rc::Rc;

/// Opens a connection to `target` (`host:port`, `[v6]:port`), from a socket of its own, as
/// [`crate::connect`] does. Questions about a host that was never met
/// ([`NewHost::Ask`](crate::NewHost::Ask)) are asked in this thread.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(target: &str, options: ConnectOptions) -> Result<Connection, ConnectError> {
    let carrier = Carrier::here();
    let connection = carrier.wait(connect_from(Host::Thread, None, target, options))?;
    Ok(Connection::new(connection, carrier))
}

/// Carries the connections of this thread for this long, and waits for nothing else.
pub fn carry(duration: Duration) {
    Thread::here().wait(sleep(duration));
}

/// The thread, as handles hold it. It stands behind the thing that they are handles of: when a
/// handle is dropped, that thing's last messages leave.
#[derive(Clone)]
struct Carrier(Rc<Thread>);

impl Carrier {
    fn here() -> Self {
        Carrier(Thread::here())
    }

    /// Waits for as long as it takes.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.wait(future)
    }

    /// Hands something over by what `future` does, and has it leave.
    fn say<T>(&self, future: impl Future<Output = T>, most: Option<Duration>) -> Option<T> {
        let said = self.0.wait_within(future, most);
        self.0.send();
        said
    }

    /// Waits for something that hands over, or ends, and has what follows leave.
    fn conclude<T>(&self, future: impl Future<Output = T>) -> T {
        let concluded = self.wait(future);
        self.0.send();
        concluded
    }

    /// Waits for something that arrives. So now and then the peer is told that it may send more.
    fn hear<T>(&self, future: impl Future<Output = T>) -> T {
        let heard = self.wait(future);
        self.0.took();
        heard
    }

    /// Changes something, and has what follows leave.
    fn act<T>(&self, act: impl FnOnce() -> T) -> T {
        let result = act();
        self.0.send();
        result
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.send();
    }
}
