//! State of a connection until it is established, and what stays of it: the proof of the peer's
//! address, and its certificates.

pub(crate) mod early;
pub(in crate::connection) mod established;
pub(in crate::connection) mod handshake;
pub(in crate::connection) mod handshake_memory;
pub(in crate::connection) mod protection;
pub(crate) mod words;

use crate::connection::establish::handshake::Handshake;
use rustls::pki_types::CertificateDer;
use std::sync::{Arc, Weak};

/// The establishment of a connection.
pub(in crate::connection) struct Establishing {
    /// `None` once it is confirmed: nothing of it is needed afterwards.
    pub handshake: Option<Box<Handshake>>,
    pub peer_certificates: Option<Arc<[CertificateDer<'static>]>>,
    /// The service that the client asked for.
    pub service: Option<Box<str>>,
    /// The peer is at its address. Before, at most three times what came from there is sent to it.
    pub address_proved: bool,
    /// Bytes that may still be sent to it until then.
    room_bytes: i64,
    /// The peer has shown that it has finished the handshake.
    pub confirmed: bool,
}

impl Establishing {
    pub fn new(handshake: Handshake, address_proved: bool) -> Self {
        Establishing {
            handshake: Some(Box::new(handshake)),
            peer_certificates: None,
            service: None,
            address_proved,
            room_bytes: 0,
            confirmed: false,
        }
    }

    /// The same, with what this one has.
    pub fn hand_over(&mut self) -> Self {
        Establishing {
            handshake: self.handshake.take(),
            peer_certificates: self.peer_certificates.take(),
            service: self.service.take(),
            address_proved: self.address_proved,
            room_bytes: self.room_bytes,
            confirmed: self.confirmed,
        }
    }

    /// The peer may be elsewhere, from where so many bytes have come.
    pub fn doubt_address(&mut self, bytes: u64) {
        (self.address_proved, self.room_bytes) = (false, 0);
        self.on_bytes_from_address(bytes);
    }

    /// The same: what went to the place before is said again there.
    pub fn doubt_place(&mut self, bytes: u64) {
        self.doubt_address(bytes);
        if let Some(handshake) = &mut self.handshake {
            handshake.repeat();
        }
    }

    /// So many bytes have come from the peer's address (RFC 9000 section 8.1).
    #[inline]
    pub fn on_bytes_from_address(&mut self, bytes: u64) {
        self.room_bytes = self.room_bytes.saturating_add_unsigned(bytes.saturating_mul(3));
    }

    /// So many bytes leave for it.
    #[inline]
    pub fn on_bytes_to_address(&mut self, bytes: u64) {
        self.room_bytes = self.room_bytes.saturating_sub_unsigned(bytes);
    }

    /// Bytes that may still be sent to it.
    pub fn room(&self) -> usize {
        if self.address_proved { usize::MAX } else { usize::try_from(self.room_bytes).unwrap_or(0) }
    }

    /// Holds the peer's certificates together with the connection that was made before, if they are
    /// the same: a client often has many connections to one server.
    pub fn share_certificates(&mut self, last: &mut Option<Weak<[CertificateDer<'static>]>>) {
        let Some(own) = &mut self.peer_certificates else { return };
        match last.as_ref().and_then(Weak::upgrade).filter(|last| last == own) {
            Some(last) => *own = last,
            None => *last = Some(Arc::downgrade(own)),
        }
    }
    /// True if packets of the handshake may still have to be sent.
    pub fn is_active(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| handshake.is_active())
    }
}
