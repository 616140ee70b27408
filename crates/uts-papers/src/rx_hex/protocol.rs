//! Rx as an application of a simulated network: packets of data that are numbered from 1, some of
//! which ask, and acknowledgements that say what has arrived. Both have the lengths that Rx gives
//! them, and on lines that compress headers they have Rx's headers.

use super::sender::Sender;
use std::collections::VecDeque;
use std::net::SocketAddr;
use uts_functions::Time;
use uts_rx::{Flags, Header, Reason, Type};
use uts_sim::network::Application;
use uts_sim::packet::{Body, Datagram, Packet};

/// Headers of IP, UDP and Rx (section 3).
pub const HEADER_BYTES: u16 = 56;
/// Of these, the one that is part of the UDP payload.
pub const RX_HEADER_BYTES: u16 = 28;
/// An acknowledgement behind its Rx header, without the octet for each packet: room, skew, first
/// packet, previous packet, serial number, reason, count.
const ACK_BYTES: usize = 18;

/// Where the first packet, the serial number and the count are in an acknowledgement, behind its
/// header.
const FIRST: usize = 4;
const SERIAL: usize = 12;
const COUNT: usize = 17;

/// Set in the number of a packet that asks for an acknowledgement. Its serial number is above, its
/// sequence number below.
const ASKS: u64 = 1 << 31;

/// Headers of a transfer's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// Only their length counts.
    Counted,
    /// They are written, as lines need them that compress headers. Data bear this verifier, if it
    /// is not 0.
    Written {
        /// See there.
        verifier: u16,
    },
}

impl Headers {
    /// A packet of Rx with these numbers; `None` where headers are only counted.
    fn packet(
        self,
        kind: Type,
        numbers: (u32, u32),
        flags: Flags,
        body: &uts_rx::Body<'_>,
    ) -> Option<Vec<u8>> {
        let Headers::Written { verifier } = self else { return None };
        let ((sequence, serial), is_data) = (numbers, kind == Type::Data);
        let header = Header {
            epoch: 0x2cb4_1c40,
            connection: 0x8000_0104,
            call: 1,
            sequence,
            serial,
            kind,
            flags,
            status: 0,
            security: if verifier == 0 { 0 } else { RXKAD },
            verifier: if is_data { verifier } else { 0 },
            service: 1,
        };
        Some(uts_rx::Packet::new(header, *body).to_bytes())
    }
}

/// Number of the security mechanism that has verifiers.
const RXKAD: u8 = 2;

/// A packet of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Which transmission it is, from 0.
    pub serial: u32,
    /// Which packet of the transfer, from 1.
    pub sequence: u32,
    /// It asks for an acknowledgement.
    pub asks: bool,
}

impl Data {
    /// The datagram that carries it, with so many bytes of the transfer.
    pub fn datagram(self, to: SocketAddr, bytes: u16, headers: Headers) -> Datagram {
        let flags = if self.asks { Flags::REQUEST_ACK } else { Flags::default() };
        let content = vec![0; usize::from(bytes)];
        let written =
            headers.packet(Type::Data, (self.sequence, self.serial), flags, &uts_rx::Body::Data(&content));
        let asks = if self.asks { ASKS } else { 0 };
        let number = u64::from(self.serial) << 32 | asks | u64::from(self.sequence);
        let counted = Body::Blank { len: RX_HEADER_BYTES + bytes, number };
        Datagram { to, ecn: None, body: written.map_or(counted, Body::Bytes) }
    }

    /// The packet of data that a datagram carries, if it is one.
    fn of(body: &Body) -> Option<Self> {
        match body {
            Body::Blank { number, .. } => Some(Data {
                serial: (number >> 32) as u32,
                sequence: (number & (ASKS - 1)) as u32,
                asks: number & ASKS != 0,
            }),
            Body::Bytes(bytes) => {
                let header = Header::parse(bytes).ok().filter(|header| header.kind == Type::Data)?;
                let Header { serial, sequence, flags, .. } = header;
                Some(Data { serial, sequence, asks: flags.has(Flags::REQUEST_ACK) })
            }
            Body::Fragment(_) => None,
        }
    }
}

/// Acknowledgement of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// All packets before this have arrived.
    pub first: u32,
    /// The transmission that has asked.
    pub serial: u32,
    /// Arrivals from `first` on: true for a packet that has arrived.
    pub beyond: Vec<bool>,
}

impl Acknowledgement {
    /// Its bytes, as the transmission of this number.
    fn bytes(&self, serial: u32, headers: Headers) -> Vec<u8> {
        let beyond: Vec<u8> = self.beyond.iter().map(|has| u8::from(*has)).collect();
        let body = uts_rx::Body::Ack(uts_rx::Ack {
            buffer_packets: super::design::WINDOW as u16,
            skew: 0,
            first: self.first,
            previous: self.first.saturating_sub(1),
            serial: self.serial,
            reason: Reason::Requested,
            beyond: &beyond,
            trailer: &[],
        });
        headers.packet(Type::Ack, (0, serial), Flags::FROM_CLIENT, &body).unwrap_or_else(|| self.counted())
    }

    fn counted(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(RX_HEADER_BYTES) + ACK_BYTES];
        let body = &mut bytes[usize::from(RX_HEADER_BYTES)..];
        body[FIRST..FIRST + 4].copy_from_slice(&self.first.to_be_bytes());
        body[SERIAL..SERIAL + 4].copy_from_slice(&self.serial.to_be_bytes());
        body[COUNT] = self.beyond.len() as u8;
        bytes.extend(self.beyond.iter().map(|has| u8::from(*has)));
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let body = bytes.get(usize::from(RX_HEADER_BYTES)..)?;
        let number = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let beyond = body.get(ACK_BYTES..ACK_BYTES + usize::from(*body.get(COUNT)?))?;
        let beyond = beyond.iter().map(|has| *has == 1).collect();
        Some(Acknowledgement { first: number(FIRST)?, serial: number(SERIAL)?, beyond })
    }
}

/// Takes a transfer, and acknowledges packets that ask.
pub struct Receiver {
    to: SocketAddr,
    /// By sequence number, from 1.
    has: Vec<bool>,
    /// When transmissions came of what it had already.
    pub duplicates: Vec<Time>,
    headers: Headers,
    /// Acknowledgements that were sent.
    sent: u32,
    acknowledgements: VecDeque<Acknowledgement>,
}

impl Receiver {
    /// A receiver of so many packets.
    pub fn new(to: SocketAddr, packets: u32, headers: Headers) -> Self {
        Receiver {
            to,
            headers,
            sent: 0,
            has: vec![false; packets as usize],
            duplicates: Vec::new(),
            acknowledgements: VecDeque::new(),
        }
    }

    fn on_data(&mut self, now: Time, data: Data) {
        let Some(has) = self.has.get_mut((data.sequence as usize).wrapping_sub(1)) else { return };
        if core::mem::replace(has, true) {
            self.duplicates.push(now);
        }
        if data.asks {
            let first = self.has.iter().position(|has| !has).unwrap_or(self.has.len());
            let last = self.has.iter().rposition(|has| *has).map_or(0, |last| last + 1).max(first);
            let beyond = self.has[first..last.min(first + usize::from(u8::MAX))].to_vec();
            self.acknowledgements.push_back(Acknowledgement {
                first: first as u32 + 1,
                serial: data.serial,
                beyond,
            });
        }
    }
}

/// One end of a transfer.
#[allow(clippy::large_enum_variant, reason = "there are two or four of them")]
pub enum End {
    /// It sends.
    Sender(Sender),
    /// It receives.
    Receiver(Receiver),
}

impl Application for End {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        match (self, packet.body) {
            (End::Sender(sender), Body::Bytes(bytes)) => {
                if let Some(acknowledgement) = Acknowledgement::parse(&bytes) {
                    sender.on_acknowledgement(now, &acknowledgement);
                }
            }
            (End::Receiver(receiver), body) => {
                if let Some(data) = Data::of(&body) {
                    receiver.on_data(now, data);
                }
            }
            (End::Sender(_), _) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let End::Sender(sender) = self {
            sender.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        match self {
            End::Sender(sender) => sender.poll_transmit(now),
            End::Receiver(receiver) => {
                let acknowledgement = receiver.acknowledgements.pop_front()?;
                receiver.sent += 1;
                let bytes = acknowledgement.bytes(receiver.sent, receiver.headers);
                Some(Datagram { to: receiver.to, ecn: None, body: Body::Bytes(bytes) })
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match self {
            End::Sender(sender) => sender.poll_timeout(),
            End::Receiver(_) => None,
        }
    }

    fn may_fragment(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_long_as_those_of_the_paper() {
        let to = SocketAddr::from(([10, 0, 0, 1], 7001));
        let data = Data { serial: 4797, sequence: 193, asks: true };
        for headers in [Headers::Counted, Headers::Written { verifier: 1 }] {
            let datagram = data.datagram(to, 520, headers);
            // The network adds the headers of IP and UDP.
            assert_eq!(datagram.body.len() + usize::from(HEADER_BYTES - RX_HEADER_BYTES), 576);
            assert_eq!(Data::of(&datagram.body), Some(data));
        }
    }

    #[test]
    fn an_acknowledgement_says_what_has_arrived() {
        let to = SocketAddr::from(([10, 0, 0, 1], 7001));
        let mut receiver = Receiver::new(to, 8, Headers::Counted);
        for (serial, sequence) in [(0, 1), (1, 2), (2, 5), (3, 2), (4, 4)] {
            receiver.on_data(Time::ZERO, Data { serial, sequence, asks: sequence == 4 });
        }
        let expected = Acknowledgement { first: 3, serial: 4, beyond: vec![false, true, true] };
        assert_eq!(
            (receiver.acknowledgements.make_contiguous(), receiver.duplicates.len()),
            (&mut [expected.clone()][..], 1)
        );
        let [counted, written] =
            [Headers::Counted, Headers::Written { verifier: 0 }].map(|headers| expected.bytes(1, headers));
        assert_eq!(
            (counted.len(), Acknowledgement::parse(&counted)),
            (written.len(), Some(expected.clone()))
        );
        assert_eq!(Acknowledgement::parse(&written), Some(expected));
        assert_eq!(Acknowledgement::parse(&written[..48]), None, "cut off");
        receiver.on_data(Time::ZERO, Data { serial: 5, sequence: 9, asks: true });
        assert_eq!(receiver.acknowledgements.len(), 1, "there is no such packet");
    }
}
