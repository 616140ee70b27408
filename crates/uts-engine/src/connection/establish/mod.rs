//! What is there until a connection is established, and what stays of it: the proof of the peer's
//! address, and its certificates.

pub(in crate::connection) mod established;
pub(in crate::connection) mod handshake;
pub(in crate::connection) mod handshake_memory;
pub(crate) mod words;

use crate::connection::establish::handshake::Handshake;
use crate::connection::receive::incoming::Ecn;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use uts_functions::Profile;

/// The establishment of a connection.
pub(in crate::connection) struct Establishing {
    /// `None` once it is confirmed: nothing of it is needed afterwards.
    pub handshake: Option<Box<Handshake>>,
    pub peer_certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// Adaptive packets that came before their keys.
    pub early: Vec<(Option<Ecn>, Vec<u8>)>,
    /// The first profile of both directions, until it is in use.
    pub proposal: Option<Arc<Profile>>,
    /// The peer is at its address. Before, at most three times what came from there is sent to it.
    pub address_proved: bool,
    pub bytes_from_address: u64,
    pub bytes_to_address: u64,
    /// The peer has shown that it has finished the handshake.
    pub confirmed: bool,
}

impl Establishing {
    pub fn new(handshake: Handshake, proposal: Arc<Profile>, address_proved: bool) -> Self {
        Establishing {
            handshake: Some(Box::new(handshake)),
            peer_certificates: None,
            early: Vec::new(),
            proposal: Some(proposal),
            address_proved,
            bytes_from_address: 0,
            bytes_to_address: 0,
            confirmed: false,
        }
    }

    /// Whether packets of the handshake may still be to be sent.
    pub fn is_active(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| handshake.is_active())
    }
}
