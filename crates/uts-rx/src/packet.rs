//! A packet: a header and what belongs to its type.

use crate::ack::Ack;
use crate::header::{Flags, HEADER_BYTES, Header, Type};
use uts_wire::{Reader, WireError};

/// Bytes of data in each packet of a jumbogram but the last (`rx_packet.h`).
pub const JUMBO_BYTES: usize = 1412;
/// Bytes between two packets of a jumbogram: flags, an unused byte, the verifier.
const JUMBO_HEADER_BYTES: usize = 4;

/// Content of a packet behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Bytes of a call or of its answer. In a jumbogram several packets, as [`Segments`] tells.
    Data(&'a [u8]),
    /// Arrivals.
    Ack(Ack<'a>),
    /// Nothing, as far as is known.
    Busy(&'a [u8]),
    /// The error's code.
    Abort(i32),
    /// Nothing, as far as is known.
    AckAll(&'a [u8]),
    /// A question of the security mechanism.
    Challenge(&'a [u8]),
    /// Its answer.
    Response(&'a [u8]),
    /// A question for the state of the peer: its kind and an index; or the answer.
    Debug(&'a [u8]),
    /// Zeros, or as the answer a text that a zero ends.
    Version(&'a [u8]),
}

impl Body<'_> {
    /// Type of packet that has it.
    pub fn kind(&self) -> Type {
        match self {
            Body::Data(_) => Type::Data,
            Body::Ack(_) => Type::Ack,
            Body::Busy(_) => Type::Busy,
            Body::Abort(_) => Type::Abort,
            Body::AckAll(_) => Type::AckAll,
            Body::Challenge(_) => Type::Challenge,
            Body::Response(_) => Type::Response,
            Body::Debug(_) => Type::Debug,
            Body::Version(_) => Type::Version,
        }
    }
}

/// A packet: the payload of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    header: Header,
    body: Body<'a>,
}

impl<'a> Packet<'a> {
    /// A packet of these; its type is that of the body, whatever the header says.
    pub fn new(header: Header, body: Body<'a>) -> Self {
        Packet { header: Header { kind: body.kind(), ..header }, body }
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Content behind the header.
    pub fn body(&self) -> &Body<'a> {
        &self.body
    }

    /// Reads a packet from a whole datagram.
    ///
    /// # Errors
    /// It is cut off; a type or a reason is unknown; an error's code is not alone.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let header = Header::read(&mut reader)?;
        let body = match header.kind {
            Type::Data => Body::Data(reader.rest()),
            Type::Ack => Body::Ack(Ack::read(&mut reader)?),
            Type::Busy => Body::Busy(reader.rest()),
            Type::Abort => Body::Abort(reader.u32("code of the error")?.cast_signed()),
            Type::AckAll => Body::AckAll(reader.rest()),
            Type::Challenge => Body::Challenge(reader.rest()),
            Type::Response => Body::Response(reader.rest()),
            Type::Debug => Body::Debug(reader.rest()),
            Type::Version => Body::Version(reader.rest()),
        };
        reader.finish("packet")?;
        Ok(Packet { header, body })
    }

    /// Appends its bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.header.to_bytes());
        match &self.body {
            Body::Ack(ack) => ack.emit(out),
            Body::Abort(code) => out.extend(code.to_be_bytes()),
            Body::Data(bytes)
            | Body::Busy(bytes)
            | Body::AckAll(bytes)
            | Body::Challenge(bytes)
            | Body::Response(bytes)
            | Body::Debug(bytes)
            | Body::Version(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        self.emit(&mut out);
        out
    }
}

/// Packets of data in a datagram, each with its own header: those of a jumbogram, or the one that
/// there is. A jumbogram that is cut off within a short header ends with the packet before.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    next: Option<(Header, &'a [u8])>,
}

impl<'a> Segments<'a> {
    /// Packets of data of a datagram; none if it has another type.
    pub fn of(packet: &Packet<'a>) -> Self {
        let next = match packet.body {
            Body::Data(bytes) => Some((packet.header, bytes)),
            _ => None,
        };
        Segments { next }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (Header, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, bytes) = self.next.take()?;
        if !header.flags.has(Flags::JUMBO) {
            return Some((header, bytes));
        }
        let (own, behind) = bytes.split_at(bytes.len().min(JUMBO_BYTES));
        if let Some(([flags, _, verifier @ ..], rest)) = behind.split_first_chunk::<JUMBO_HEADER_BYTES>() {
            let next = Header {
                sequence: header.sequence.wrapping_add(1),
                serial: header.serial.wrapping_add(1),
                flags: Flags(*flags),
                verifier: u16::from_be_bytes(*verifier),
                ..header
            };
            self.next = Some((next, rest));
        }
        Some((header, own))
    }
}
