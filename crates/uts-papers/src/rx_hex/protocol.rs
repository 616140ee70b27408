//! Rx as an application of a simulated network: packets of data that are numbered from 1, some of
//! which ask, and acknowledgements that say what has arrived. Both have the lengths that Rx gives
//! them.

use super::sender::Sender;
use std::collections::VecDeque;
use std::net::SocketAddr;
use uts_functions::Time;
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
    pub fn datagram(self, to: SocketAddr, bytes: u16) -> Datagram {
        let asks = if self.asks { ASKS } else { 0 };
        let number = u64::from(self.serial) << 32 | asks | u64::from(self.sequence);
        Datagram { to, ecn: None, body: Body::Blank { len: RX_HEADER_BYTES + bytes, number } }
    }

    fn of(number: u64) -> Self {
        Data {
            serial: (number >> 32) as u32,
            sequence: (number & (ASKS - 1)) as u32,
            asks: number & ASKS != 0,
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
    fn bytes(&self) -> Vec<u8> {
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
    acknowledgements: VecDeque<Acknowledgement>,
}

impl Receiver {
    /// A receiver of so many packets.
    pub fn new(to: SocketAddr, packets: u32) -> Self {
        Receiver {
            to,
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
            (End::Receiver(receiver), Body::Blank { number, .. }) => receiver.on_data(now, Data::of(number)),
            _ => {}
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
                Some(Datagram { to: receiver.to, ecn: None, body: Body::Bytes(acknowledgement.bytes()) })
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
        let datagram = data.datagram(to, 520);
        // The network adds the headers of IP and UDP.
        assert_eq!(datagram.body.len() + usize::from(HEADER_BYTES - RX_HEADER_BYTES), 576);
        let Body::Blank { number, .. } = datagram.body else { panic!("a blank") };
        assert_eq!(Data::of(number), data);
    }

    #[test]
    fn an_acknowledgement_says_what_has_arrived() {
        let to = SocketAddr::from(([10, 0, 0, 1], 7001));
        let mut receiver = Receiver::new(to, 8);
        for (serial, sequence) in [(0, 1), (1, 2), (2, 5), (3, 2), (4, 4)] {
            receiver.on_data(Time::ZERO, Data { serial, sequence, asks: sequence == 4 });
        }
        let expected = Acknowledgement { first: 3, serial: 4, beyond: vec![false, true, true] };
        assert_eq!(
            (receiver.acknowledgements.make_contiguous(), receiver.duplicates.len()),
            (&mut [expected.clone()][..], 1)
        );
        assert_eq!(Acknowledgement::parse(&expected.bytes()), Some(expected.clone()));
        assert_eq!(Acknowledgement::parse(&expected.bytes()[..48]), None, "cut off");
        receiver.on_data(Time::ZERO, Data { serial: 5, sequence: 9, asks: true });
        assert_eq!(receiver.acknowledgements.len(), 1, "there is no such packet");
    }
}
