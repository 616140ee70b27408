//! Header compression of a slow line, as SLIP had it: Van Jacobson's of TCP/IP headers (RFC 1144),
//! and the one of Rx/UDP/IP headers that follows it (D. Bachmann, P. Honeyman and L. B. Huston,
//! "The Rx Hex", CITI TR 93-8, 1993, section 7).
//!
//! Both ends keep the last headers of each connection in slots. What a packet's headers add to them
//! is sent in their place. If a frame is lost, the receiver restores wrong headers from then on:
//! the checksum of TCP or UDP, which is always sent, tells the host behind. The sender sees from
//! the packets themselves that its peer has missed something, and sends whole headers again.
//!
//! The upper half of a frame's first byte says what it is, where an IP packet has its version:
//!
//! | | |
//! | --- | --- |
//! | 5 | whole headers of Rx for a slot, whose number is in the place of the IP protocol |
//! | 6 | compressed headers of Rx |
//! | 7 | whole headers of TCP for a slot |
//! | 8 to 15 | compressed headers of TCP |
//! | else | a packet as it is |
//!
//! 6 is the version of IPv6 as well. A line that is to carry both puts a byte before each frame
//! that says which it is: 0 before a packet as it is, 1 before the others.

mod delta;
mod ipv4;
pub mod rx;
mod slots;
pub mod tcp;

use crate::config::between;
use crate::error::SpecError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Slots, if nothing is said (RFC 1144, section 4).
const SLOTS: u16 = 16;
/// Most slots: their number is a byte.
const SLOTS_MAX: u16 = 256;
/// Before a packet as it is, where types are said.
const AS_IT_IS: u8 = 0;
/// Before a frame of a slot.
const OF_SLOT: u8 = 1;

/// Compression of headers on a link.
///
/// Text form, in TOML too: `off`, `vj`, `rx`, each with its slots as in `rx:64`, and
/// `rx:64,typed`.
///
/// It looks at packets that show their IP headers ([`Payload::ip`](crate::Payload::ip)). All others
/// pass as they are. Packets are compressed as their transmission begins, and restored as they
/// arrive. What is lost or damaged between therefore costs what follows, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Compression {
    /// None.
    #[default]
    Off,
    /// Compression of TCP/IP headers (RFC 1144): 40 bytes become 3 or more.
    Vj {
        /// Connections whose headers are kept, 1 to 256.
        slots: u16,
    },
    /// Compression of Rx/UDP/IP headers, 56 bytes of which become 4 or more, and of TCP/IP headers.
    Rx {
        /// Connections of each whose headers are kept, 1 to 256.
        slots: u16,
        /// A byte before each frame says whether it is compressed. Without it IPv6 cannot pass.
        typed: bool,
    },
}

impl Compression {
    pub(crate) fn check(self) -> Result<(), SpecError> {
        match self {
            Compression::Off => Ok(()),
            Compression::Vj { slots } | Compression::Rx { slots, .. } => {
                between("compress", "number of slots", slots.into(), 1, SLOTS_MAX.into())
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, slots, typed) = match *self {
            Compression::Off => return f.write_str("off"),
            Compression::Vj { slots } => ("vj", slots, false),
            Compression::Rx { slots, typed } => ("rx", slots, typed),
        };
        f.write_str(name)?;
        if slots != SLOTS {
            write!(f, ":{slots}")?;
        }
        f.write_str(if typed { ",typed" } else { "" })
    }
}

const WANTED: &str = "must be off, vj[:SLOTS] or rx[:SLOTS][,typed], as in vj, rx or rx:64,typed";

impl FromStr for Compression {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || SpecError::new("compress", WANTED);
        let (name, typed) = text.strip_suffix(",typed").map_or((text, false), |name| (name, true));
        let (name, slots) = match name.split_once(':') {
            Some((name, slots)) => (name, slots.parse().map_err(|_| wrong())?),
            None => (name, SLOTS),
        };
        let compression = match name {
            "off" if text == "off" => Compression::Off,
            "vj" if !typed => Compression::Vj { slots },
            "rx" => Compression::Rx { slots, typed },
            _ => return Err(wrong()),
        };
        compression.check().map(|()| compression)
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> String {
        compression.to_string()
    }
}

impl TryFrom<String> for Compression {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

/// Form of a frame's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// As they are.
    Plain,
    /// Whole, for a slot.
    Whole,
    /// Compressed.
    Compressed,
}

/// A frame that is to go on the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Form of its headers.
    pub form: Form,
    /// Its bytes, without framing.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// A packet of IPv4 with the number of its slot in the place of the protocol, and with this
    /// upper half of the first byte in the place of the version.
    fn whole(first_half: u8, packet: &[u8], slot: u8) -> Frame {
        let mut bytes = packet.to_vec();
        bytes[0] = first_half | bytes[0] & 0xf;
        bytes[9] = slot;
        Frame { form: Form::Whole, bytes }
    }
}

/// A packet that the line has no form for: its first half byte means something else there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packet whose first half byte is {first_half:#x} cannot be told from compressed headers")]
pub struct Unsendable {
    /// The upper half of the first byte.
    pub first_half: u8,
}

/// A frame whose headers cannot be restored: the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Discard(pub &'static str);

/// The sending end of a line.
#[derive(Debug)]
pub struct Compressor {
    tcp: tcp::Compressor,
    rx: Option<rx::Compressor>,
    typed: bool,
}

impl Compressor {
    /// An end that has sent nothing; `None` if nothing is to be compressed.
    pub fn new(compression: Compression) -> Option<Self> {
        let (slots, rx, typed) = match compression {
            Compression::Off => return None,
            Compression::Vj { slots } => (slots, None, false),
            Compression::Rx { slots, typed } => (slots, Some(rx::Compressor::new(slots)), typed),
        };
        Some(Compressor { tcp: tcp::Compressor::new(slots), rx, typed })
    }

    /// The frame of an IP packet, the next that the line transmits.
    ///
    /// # Errors
    /// The line has no form for it.
    pub fn compress(&mut self, packet: &[u8]) -> Result<Frame, Unsendable> {
        let of_slot =
            self.rx.as_mut().and_then(|rx| rx.compress(packet)).or_else(|| self.tcp.compress(packet));
        let mut frame = of_slot.unwrap_or_else(|| Frame { form: Form::Plain, bytes: packet.to_vec() });
        if self.typed {
            frame.bytes.insert(0, if frame.form == Form::Plain { AS_IT_IS } else { OF_SLOT });
        } else if frame.form == Form::Plain && is_of_slot(packet, self.rx.is_some()) {
            return Err(Unsendable { first_half: first_half(packet) });
        }
        Ok(frame)
    }
}

/// The receiving end of a line.
#[derive(Debug)]
pub struct Decompressor {
    tcp: tcp::Decompressor,
    rx: Option<rx::Decompressor>,
    typed: bool,
}

impl Decompressor {
    /// An end that has received nothing; `None` if nothing is compressed.
    pub fn new(compression: Compression) -> Option<Self> {
        let (slots, rx, typed) = match compression {
            Compression::Off => return None,
            Compression::Vj { slots } => (slots, None, false),
            Compression::Rx { slots, typed } => (slots, Some(rx::Decompressor::new(slots)), typed),
        };
        Some(Decompressor { tcp: tcp::Decompressor::new(slots), rx, typed })
    }

    /// The packet of a frame, the next that has arrived. If a frame was lost before it, it may be
    /// another than the one that was sent; its checksum tells.
    ///
    /// # Errors
    /// No packet has such a frame, or its slot is not known.
    pub fn expand(&mut self, frame: &[u8]) -> Result<Vec<u8>, Discard> {
        let packet = self.read(frame);
        if packet.is_err() {
            self.on_error();
        }
        packet
    }

    fn read(&mut self, frame: &[u8]) -> Result<Vec<u8>, Discard> {
        let (frame, of_slot) = match (self.typed, frame) {
            (false, frame) => (frame, is_of_slot(frame, self.rx.is_some())),
            (true, [AS_IT_IS, frame @ ..]) => (frame, false),
            (true, [OF_SLOT, frame @ ..]) => (frame, true),
            (true, _) => return Err(Discard("the type of the frame is neither 0 nor 1")),
        };
        match (&mut self.rx, first_half(frame)) {
            _ if !of_slot => Ok(frame.to_vec()),
            (Some(rx), 5 | 6) => rx.expand(frame),
            (_, 7..) => self.tcp.expand(frame),
            _ => Err(Discard("the frame is of no slot, although its type says so")),
        }
    }

    /// The line knows that something was lost or damaged. A frame that does not say its slot is
    /// discarded until one does (RFC 1144, section 4.1).
    pub fn on_error(&mut self) {
        self.tcp.on_error();
        if let Some(rx) = &mut self.rx {
            rx.on_error();
        }
    }
}

/// True if a frame with this first byte belongs to a slot, on a line without types.
fn is_of_slot(frame: &[u8], with_rx: bool) -> bool {
    first_half(frame) >= if with_rx { 5 } else { 7 }
}

fn first_half(bytes: &[u8]) -> u8 {
    bytes.first().map_or(0, |first| first >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_types_refuses_what_it_would_take_for_something_else() {
        let ipv6 = [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &[1; 32]].concat();
        for (text, carries) in [("vj", true), ("rx", false), ("rx,typed", true)] {
            let compression = text.parse().expect("a compression");
            let mut near = Compressor::new(compression).expect("on");
            let mut far = Decompressor::new(compression).expect("on");
            let Ok(frame) = near.compress(&ipv6) else {
                assert!(!carries, "{text}");
                continue;
            };
            assert!(carries && frame.form == Form::Plain, "{text}");
            assert_eq!(frame.bytes.len(), ipv6.len() + usize::from(text == "rx,typed"));
            assert_eq!(far.expand(&frame.bytes), Ok(ipv6.clone()));
        }
        let mut rx = Compressor::new(Compression::Rx { slots: 1, typed: false }).expect("on");
        let error = rx.compress(&ipv6).map_err(|error| error.to_string());
        assert_eq!(
            error.expect_err("refused"),
            "a packet whose first half byte is 0x6 cannot be told from compressed headers"
        );
        // What is no packet at all passes.
        assert_eq!(rx.compress(&[]), Ok(Frame { form: Form::Plain, bytes: vec![] }));
    }

    #[test]
    fn types_are_checked() {
        let mut far = Decompressor::new(Compression::Rx { slots: 1, typed: true }).expect("on");
        for frame in [&[][..], &[2, 0x45], &[1], &[1, 0x45], &[1, 0x60, 0, 0, 0]] {
            assert!(far.expand(frame).is_err(), "{frame:02x?}");
        }
    }
}
