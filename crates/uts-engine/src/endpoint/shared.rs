//! Common property of an endpoint's connections: the ways to their peers, what was learnt of them,
//! memory, and turns.

use super::budget::Budget;
use super::history::History;
use super::peers::Peers;
use crate::config::EndpointConfig;
use crate::policy::Turns;
use rustls::pki_types::CertificateDer;
use std::sync::Weak;
use uts_functions::sequencing::reassembly::Spares;

/// See the module's page.
pub(super) struct Shared {
    /// Bytes that they have in flight, by peer.
    pub peers: Peers,
    /// Knowledge of connections that are gone, by host.
    pub history: History,
    /// Time that they may spend on adaptation.
    pub turns: Turns,
    /// The latest that a peer has shown.
    pub certificates: Option<Weak<[CertificateDer<'static>]>>,
    /// Memory for what peers make connections hold.
    pub budget: Budget,
    /// Large buffers for what flows receive.
    pub spares: Spares,
}

impl Shared {
    pub fn new(config: &EndpointConfig) -> Self {
        Shared {
            peers: Peers::new(config.waiting_bytes_max),
            history: History::default(),
            turns: Turns::default(),
            certificates: None,
            budget: Budget::new(config.memory_bytes_max),
            spares: Spares::default(),
        }
    }
}
