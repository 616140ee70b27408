//! Captures of UTS in words: packets, frames, exchanges and mechanisms by name.
//!
//! Begin with [`Decoder`]: datagrams of a [`capture`] go in, in the order of time, and rows come
//! out, one for each packet. The secrets are those of a key log in the form of NSS, which TLS
//! writes where `SSLKEYLOGFILE` is set ([`KeyLog`]). From them follow the keys of the handshake
//! ([`secrets`]), and by the exporter those of adaptive packets (`spec/keys.md` K-17).
//!
//! The decoder belongs to neither end, so it has to learn what the ends know: ids from the
//! handshake and from NewId frames, profiles from the Hello and from requests for an exchange. A
//! packet that it cannot open has a row that says why.
#![forbid(unsafe_code)]

pub mod capture;
mod connection;
mod decoder;
mod handshake;
mod keylog;
mod row;
pub mod secrets;
mod words;

pub use capture::{Capture, CaptureError, Datagram};
pub use decoder::Decoder;
pub use keylog::{KeyLog, KeyLogError};
pub use row::{Kind, Row, Said};
