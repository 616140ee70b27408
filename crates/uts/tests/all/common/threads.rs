//! Parts that the tests of `uts::blocking` share.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and sockets of the system, in real time"
)]

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use uts::blocking::{Connection, Flow, Listener};
use uts::{ConnectOptions, ConnectionConfig, Identity, ServerOptions};

/// A test that has not ended by then hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub const ANY: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// Fails instead of hanging.
pub fn join<T>(thread: JoinHandle<T>) -> T {
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "it hangs");
        thread::sleep(Duration::from_millis(1));
    }
    thread.join().expect("it has not failed")
}

/// A server in a thread of its own, and how to reach it.
pub fn serve<T: Send + 'static>(
    change: impl FnOnce(&mut ConnectionConfig) + Send + 'static,
    serve: impl FnOnce(&Listener) -> T + Send + 'static,
) -> (JoinHandle<T>, String, ConnectOptions) {
    let (tell, told) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut options = ServerOptions::new(Identity::generate().expect("a key"));
        change(&mut options.connection);
        let listener = Listener::bind(ANY.into(), options).expect("bound");
        tell.send((listener.local_addr(), listener.fingerprint())).expect("told");
        serve(&listener)
    });
    let (at, fingerprint) = told.recv().expect("bound");
    (server, at.to_string(), ConnectOptions::pinned(fingerprint))
}

pub fn accepted(listener: &Listener) -> (Connection, Flow) {
    let connection = listener.accept().expect("a client");
    let flow = connection.accept_flow().expect("a flow");
    (connection, flow)
}

/// The client in a thread, so that the test can fail instead of hanging.
pub fn within<T: Send + 'static>(client: impl FnOnce() -> T + Send + 'static) -> T {
    join(thread::spawn(client))
}

pub fn some_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * n / 251) as u8).collect()
}
