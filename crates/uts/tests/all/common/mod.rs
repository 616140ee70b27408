//! Parts that the tests over real sockets share.
#![allow(dead_code, reason = "each test file uses its part")]

#[cfg(unix)]
pub mod threads;

use std::time::Duration;
use uts::{ConnectOptions, Connection, Identity, Listener, ServerOptions, connect};

/// A test that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Fails instead of hanging.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

pub fn identity() -> Identity {
    Identity::generate().expect("a key")
}

pub fn server(options: ServerOptions) -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), options).expect("bound");
    let target = listener.local_addr().to_string();
    (listener, target)
}

/// A listener, and both ends of a connection to it.
pub async fn pair() -> (Listener, Connection, Connection) {
    pair_with(|_| {}).await
}

pub async fn pair_with(change: impl Fn(&mut uts::ConnectionConfig)) -> (Listener, Connection, Connection) {
    let mut options = ServerOptions::new(identity());
    change(&mut options.connection);
    let (listener, target) = server(options);
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    change(&mut options.connection);
    let (client, accepted) =
        within(async { tokio::join!(connect(&target, options), listener.accept()) }).await;
    (listener, client.expect("connected"), accepted.expect("accepted"))
}

/// Bytes that tell their place, so that anything lost, repeated or swapped shows.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    use rand::{Rng, SeedableRng};
    let mut bytes = vec![0; len];
    rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Output that a future gives without waiting.
pub fn futures_now<F: Future>(future: F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
