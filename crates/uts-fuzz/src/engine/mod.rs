//! The engine in virtual time: the exchange's machines, the handshake, and whole endpoints.

pub mod datagrams;
pub mod exchange;
pub mod handshake;
mod sealed;

use std::net::SocketAddr;
use std::sync::OnceLock;
use uts_sim::identity::Identities;

/// The address of the client (0), of the server (1), or of a stranger.
fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4433))
}

/// Keys, made once.
fn identities() -> &'static Identities {
    static IDENTITIES: OnceLock<Identities> = OnceLock::new();
    IDENTITIES.get_or_init(|| Identities::new().expect("keys"))
}
