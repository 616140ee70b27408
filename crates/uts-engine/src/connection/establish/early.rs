//! The request that a client may send with its first flight, and its answer: one round trip for
//! both, beside the handshake. A ticket of an earlier connection gives the keys. Who copies the
//! packets can have the request done twice, so that it must be one that may be. (K-23 to K-28)

use super::handshake::{Handshake, LevelState};
use super::protection::{Place, is_authentic};
use crate::connection::Side;
use crate::connection::stage::{Core, Fresh, Stage};
use crate::endpoint::tickets::Tickets;
use crate::event::Event;
use bytes::Bytes;
use rustls::quic::Keys;
use std::sync::{Arc, Mutex, PoisonError};
use uts_functions::Time;
use uts_wire::packet::establishment::Level;
use uts_wire::{ConnectionId, End, Hello};

/// The most bytes of an early request, and of its answer. Each fits into a first window (RFC 6928).
/// (K-25)
pub const EARLY_BYTES_MAX: usize = 8 * 1024;

/// Bytes that say how long a request or an answer is. (K-25)
pub(super) const LENGTH_BYTES: usize = 4;

/// Tickets of a server, which all that share its port have in common.
pub(crate) type SharedTickets = Arc<Mutex<Tickets>>;

/// An early request that has come to a server, whose client is not known to be where it seems to
/// be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyRequest {
    /// The request: at most [`EARLY_BYTES_MAX`].
    pub bytes: Bytes,
    /// The service that the client asks for; empty if it names none.
    pub service: String,
}

/// Reason for which there can be no early answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EarlyError {
    /// The handshake is over. The client asks again by its connection.
    #[error("the handshake is over: the client asks again by its connection")]
    Over,
    /// It was answered before.
    #[error("it was answered before")]
    Answered,
    /// There are more bytes than fit.
    #[error("{0} bytes, where at most {EARLY_BYTES_MAX} fit")]
    TooLong(usize),
}

/// Part that a connection begins its level Early with.
pub(crate) enum Prepared {
    /// A client asks.
    Request {
        keys: Keys,
        /// Words of the ticket, which stand in each packet.
        words: Bytes,
        request: Bytes,
    },
    /// A server takes requests.
    Tickets(SharedTickets),
}

/// State of the level Early beyond what all levels have.
#[derive(Default)]
pub(crate) struct Early {
    /// Words of a client's ticket.
    pub words: Bytes,
    tickets: Option<SharedTickets>,
    read: Vec<u8>,
    /// The request, or the answer, was handed over.
    is_told: bool,
}

impl Early {
    pub(super) fn on_bytes(&mut self, bytes: &[u8]) {
        self.read.extend_from_slice(bytes);
    }

    /// The request or the answer, once all of it is there.
    fn whole(&self) -> Option<&[u8]> {
        let (length, rest) = self.read.split_first_chunk::<LENGTH_BYTES>()?;
        rest.get(..u32::from_be_bytes(*length) as usize)
    }
}

/// A request or an answer as it travels. (K-25)
fn framed(bytes: &[u8]) -> Vec<u8> {
    [(bytes.len() as u32).to_be_bytes().as_slice(), bytes].concat()
}

impl Handshake {
    /// Has a client's request travel with the first flight, or a server take such.
    pub fn prepare_early(&mut self, prepared: Prepared) {
        match prepared {
            Prepared::Request { keys, words, request } => {
                self.early.words = words;
                self.levels[Level::Early.index()] = Some(LevelState::new(Level::Early, keys));
                self.say_early(&request);
            }
            Prepared::Tickets(tickets) => self.early.tickets = Some(tickets),
        }
    }

    fn say_early(&mut self, bytes: &[u8]) {
        if let Some(level) = &mut self.levels[Level::Early.index()] {
            level.out = framed(bytes);
            level.to_send.insert(0..level.out.len() as u64);
        }
    }

    /// True if packets of the level Early can be opened. A server has the keys with the first one
    /// that is authentic under a ticket that was not used. (K-24, K-26)
    fn meets_early(
        &mut self,
        now: Time,
        original_dcid: &ConnectionId,
        words: &[u8],
        packet: &[u8],
        place: &Place,
    ) -> bool {
        let level = &mut self.levels[Level::Early.index()];
        if level.is_some() {
            return true;
        }
        let Some(tickets) = &self.early.tickets else { return false };
        let mut tickets = tickets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((serial, keys)) = tickets.keys(now, words, original_dcid) else { return false };
        if !is_authentic(&keys, packet, place) || !tickets.use_up(serial) {
            return false;
        }
        *level = Some(LevelState::new(Level::Early, keys));
        true
    }

    /// Memory that the level has beyond its stream, in bytes.
    pub fn early_bytes(&self) -> usize {
        self.early.read.capacity()
    }
}

impl<S: Stage> Core<S> {
    /// Takes in a packet of the level Early. Late ones are of no use to anybody.
    pub(in crate::connection) fn handle_early(
        &mut self,
        now: Time,
        datagram: &mut [u8],
        place: &Place,
        (scid, words): (ConnectionId, &[u8]),
    ) {
        let Some(handshake) = &mut self.establishing.handshake else { return };
        if !self.life.is_live()
            || !handshake.meets_early(now, &self.identity.original_dcid, words, datagram, place)
        {
            return;
        }
        let brought = self.open_establishment(now, datagram, place, scid);
        if self.identity.side == Side::Client && brought.is_some() {
            self.tell_early_answer();
        }
    }

    fn tell_early_answer(&mut self) {
        let Some(handshake) = &mut self.establishing.handshake else { return };
        if handshake.early.is_told {
            return;
        }
        if let Some(answer) = handshake.early.whole().map(Bytes::copy_from_slice) {
            handshake.early.is_told = true;
            self.ways.events.push_back(Event::EarlyAnswer(Some(answer)));
        }
    }

    /// The handshake is confirmed: what was not answered early is not answered any more. (K-28)
    pub(in crate::connection) fn end_early(&mut self) {
        let Some(handshake) = &mut self.establishing.handshake else { return };
        let asked = self.identity.side == Side::Client && handshake.levels[Level::Early.index()].is_some();
        if asked && !core::mem::replace(&mut handshake.early.is_told, true) {
            self.ways.events.push_back(Event::EarlyAnswer(None));
        }
    }
}

impl Fresh {
    pub(in crate::connection) fn take_early_request(&mut self) -> Option<EarlyRequest> {
        let handshake = self.establishing.handshake.as_mut()?;
        if self.identity.side == Side::Client || handshake.early.is_told {
            return None;
        }
        let bytes = Bytes::copy_from_slice(handshake.early.whole()?);
        // What is wrong with it ends the handshake.
        let hello = Hello::parse(handshake.tls.quic_transport_parameters()?, End::Client).ok()?;
        handshake.early.is_told = true;
        Some(EarlyRequest { bytes, service: hello.service })
    }

    pub(in crate::connection) fn answer_early(&mut self, answer: &[u8]) -> Result<(), EarlyError> {
        let handshake = self.establishing.handshake.as_mut().filter(|_| self.life.is_live());
        let handshake = handshake.ok_or(EarlyError::Over)?;
        match &handshake.levels[Level::Early.index()] {
            None => Err(EarlyError::Over),
            Some(level) if !level.out.is_empty() => Err(EarlyError::Answered),
            Some(_) => {
                handshake.say_early(answer);
                Ok(())
            }
        }
    }
}
