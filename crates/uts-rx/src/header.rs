//! The header that begins each packet.

use uts_wire::{Problem, Reader, WireError};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 28;
/// Bits of a connection's number that tell which of its four channels a call is on.
pub const CHANNEL_MASK: u32 = 3;

/// Type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Bytes of a call, from the client, or of its answer, from the server.
    Data = 1,
    /// Acknowledgement of packets of data.
    Ack = 2,
    /// The server has no place for the call now.
    Busy = 3,
    /// The end of a call, or of a connection, by an error.
    Abort = 4,
    /// Acknowledgement of all packets of a call.
    AckAll = 5,
    /// The server asks the client to prove who it is.
    Challenge = 6,
    /// The client's proof.
    Response = 7,
    /// A question about the state of the peer, or its answer.
    Debug = 8,
    /// A question for the version of the peer's program, or its answer.
    Version = 13,
}

impl Type {
    /// All types. 9 to 12 are reserved, and no implementation sends them.
    pub const ALL: [Type; 9] = [
        Type::Data,
        Type::Ack,
        Type::Busy,
        Type::Abort,
        Type::AckAll,
        Type::Challenge,
        Type::Response,
        Type::Debug,
        Type::Version,
    ];

    /// The type of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Type::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Flags of a packet; bits without a name are kept as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The client of the call has sent it.
    pub const FROM_CLIENT: Flags = Flags(1);
    /// The sender asks for an acknowledgement.
    pub const REQUEST_ACK: Flags = Flags(2);
    /// It is the last packet of its direction of the call.
    pub const LAST: Flags = Flags(4);
    /// More packets follow at once.
    pub const MORE: Flags = Flags(8);
    /// In data: further packets follow in the same datagram ([`Segments`](crate::Segments)).
    pub const JUMBO: Flags = Flags(32);
    /// In an acknowledgement: the receiver understands slow start.
    pub const SLOW_START_OK: Flags = Flags(32);

    /// True if it has all of `flags`.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, flags: Flags) -> Self {
        Flags(self.0 | flags.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, flags: Flags) -> Self {
        Flags(self.0 & !flags.0)
    }
}

/// Header of a packet: 28 bytes, numbers with the highest byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Start of the client, in seconds; tells its connections from those of an earlier life.
    pub epoch: u32,
    /// Number of the connection; the two lowest bits are the channel.
    pub connection: u32,
    /// Number of the call on its channel; 0 if the packet concerns the connection.
    pub call: u32,
    /// Number of the packet of data in its direction of the call, from 1; 0 in other packets.
    pub sequence: u32,
    /// Number of the transmission on the connection. No two transmissions have the same.
    pub serial: u32,
    /// Type of the packet.
    pub kind: Type,
    /// Its flags.
    pub flags: Flags,
    /// A byte of the application's.
    pub status: u8,
    /// Number of the security mechanism of the connection; 0 is none.
    pub security: u8,
    /// Verifier of the security mechanism over the header (`spare` in OpenAFS); 0 is none.
    pub verifier: u16,
    /// Number of the service of the server.
    pub service: u16,
}

impl Header {
    /// Reads a header from the start of a packet.
    ///
    /// # Errors
    /// The bytes end before it does; the type is none of [`Type::ALL`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        Header::read(&mut Reader::new(bytes))
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let epoch = reader.u32("epoch")?;
        let connection = reader.u32("connection")?;
        let call = reader.u32("call")?;
        let sequence = reader.u32("sequence number")?;
        let serial = reader.u32("serial number")?;
        let at = reader.offset();
        let number = reader.u8("type")?;
        let kind = Type::from_number(number).ok_or(WireError {
            what: "type",
            at,
            problem: Problem::Unknown { found: number.into() },
        })?;
        Ok(Header {
            epoch,
            connection,
            call,
            sequence,
            serial,
            kind,
            flags: Flags(reader.u8("flags")?),
            status: reader.u8("status")?,
            security: reader.u8("security")?,
            // OpenAFS, rx_packet.c: the verifier is the upper half of the last word.
            verifier: reader.u16("verifier")?,
            service: reader.u16("service")?,
        })
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [self.epoch, self.connection, self.call, self.sequence, self.serial];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[20..24].copy_from_slice(&[self.kind as u8, self.flags.0, self.status, self.security]);
        bytes[24..26].copy_from_slice(&self.verifier.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.service.to_be_bytes());
        bytes
    }

    /// Channel of the connection that the call is on, 0 to 3.
    pub fn channel(&self) -> u32 {
        self.connection & CHANNEL_MASK
    }
}
