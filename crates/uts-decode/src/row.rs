//! Rows: what the decoder tells of a packet.

use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;

/// Kinds of packets, and of what comes in the place of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Establishment, under keys that follow from a connection id.
    Initial,
    /// Establishment, under keys of the TLS handshake.
    Handshake,
    /// An early request or its answer, under keys that follow from a ticket.
    Early,
    /// The server wants a token first.
    Retry,
    /// The server does not speak the version.
    VersionRefusal,
    /// A packet of another version.
    OtherVersion,
    /// A packet of a connection, under the profile of its epoch.
    Adaptive,
    /// The end of a connection whose keys the sender has lost.
    StatelessReset,
    /// Bytes that are no packet of UTS.
    Other,
}

impl Kind {
    /// Its name in lines.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Initial => "initial",
            Kind::Handshake => "handshake",
            Kind::Early => "early",
            Kind::Retry => "retry",
            Kind::VersionRefusal => "version refusal",
            Kind::OtherVersion => "other version",
            Kind::Adaptive => "adaptive",
            Kind::StatelessReset => "reset",
            Kind::Other => "other",
        }
    }
}

/// A frame, or a function header of an establishment packet, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    /// Its name in `spec/packets.md`.
    pub frame: &'static str,
    /// Its fields in words; mechanisms are named.
    pub text: String,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Seconds since the first datagram of the capture.
    pub at_s: f64,
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// Number of the connection, from 1, in the order of beginning; `None` = it belongs to none
    /// that is known.
    pub connection: Option<usize>,
    /// True if the end that opened the connection sent it.
    pub is_from_client: Option<bool>,
    /// Kind of packet.
    pub kind: Kind,
    /// Bytes of the packet in its datagram.
    pub bytes: usize,
    /// Packet number, if it could be read.
    pub number: Option<u64>,
    /// Epoch of an adaptive packet.
    pub epoch: Option<u32>,
    /// Frames, or function headers.
    pub said: Vec<Said>,
    /// Reason for which nothing, or not all, of it was read.
    pub unread: Option<String>,
}

impl Row {
    /// True if it tells something of an exchange: a request, an answer, a confirmation, a refusal.
    pub fn is_of_exchange(&self) -> bool {
        self.said.iter().any(|said| said.frame.ends_with("-PF"))
    }
}

/// One line: time, connection and direction, kind or epoch, number, bytes, frames.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.is_from_client {
            Some(true) => ">",
            Some(false) => "<",
            None => "?",
        };
        let connection = self.connection.map_or_else(|| "-".to_owned(), |number| number.to_string());
        write!(f, "{:>11.6} {connection:>3} {direction} ", self.at_s)?;
        match self.epoch {
            Some(epoch) => write!(f, "{:<15}", format!("epoch {epoch}"))?,
            None => write!(f, "{:<15}", self.kind.name())?,
        }
        match self.number {
            Some(number) => write!(f, " {number:>6}")?,
            None => write!(f, " {:>6}", "-")?,
        }
        write!(f, " {:>5} B", self.bytes)?;
        for (place, said) in self.said.iter().enumerate() {
            let before = if place == 0 { "  " } else { "; " };
            write!(f, "{before}{}", said.frame)?;
            if !said.text.is_empty() {
                write!(f, " {}", said.text)?;
            }
        }
        if let Some(why) = &self.unread {
            write!(f, "{}({why})", if self.said.is_empty() { "  " } else { "; " })?;
        }
        Ok(())
    }
}
