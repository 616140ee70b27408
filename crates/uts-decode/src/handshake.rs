//! The handshake of TLS as a bystander reads it: the streams of a level, and what the messages say
//! of the session.

use crate::secrets::Suite;
use std::collections::BTreeMap;
use uts_wire::{Reader, WireError};

/// Bytes of a stream that are kept, at the most; a chain of certificates has less.
const STREAM_BYTES_MAX: usize = 1 << 18;

/// Number of the extension that holds a Hello (K-4).
const HELLO_EXTENSION: u16 = 57;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const ENCRYPTED_EXTENSIONS: u8 = 8;

/// Bytes of one level in one direction, put in order.
#[derive(Default)]
pub(crate) struct Stream {
    whole: Vec<u8>,
    apart: BTreeMap<usize, Vec<u8>>,
    apart_bytes: usize,
    /// Bytes of messages that were read.
    read: usize,
}

/// Facts of a session that a message tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Random of the client and its Hello.
    Client { random: [u8; 32], hello: Option<Vec<u8>> },
    /// The suite that the server took.
    Server { suite: Option<Suite> },
    /// The server's Hello.
    Extensions { hello: Option<Vec<u8>> },
}

impl Stream {
    /// Takes bytes at an offset, in any order, also again.
    pub(crate) fn add(&mut self, offset: u32, bytes: &[u8]) {
        let offset = offset as usize;
        let room = STREAM_BYTES_MAX.saturating_sub(self.whole.len() + self.apart_bytes);
        if offset > self.whole.len() {
            if bytes.len() <= room && !self.apart.contains_key(&offset) {
                self.apart_bytes += bytes.len();
                self.apart.insert(offset, bytes.to_vec());
            }
            return;
        }
        self.append(offset, bytes);
        while let Some(next) = self.apart.first_entry().filter(|next| *next.key() <= self.whole.len()) {
            let (at, bytes) = next.remove_entry();
            self.apart_bytes -= bytes.len();
            self.append(at, &bytes);
        }
    }

    fn append(&mut self, offset: usize, bytes: &[u8]) {
        let new = bytes.get(self.whole.len().saturating_sub(offset)..).unwrap_or_default();
        let room = STREAM_BYTES_MAX.saturating_sub(self.whole.len());
        self.whole.extend_from_slice(&new[..new.len().min(room)]);
    }

    /// The next whole message that tells something.
    pub(crate) fn next_message(&mut self) -> Option<Message> {
        loop {
            let rest = self.whole.get(self.read..)?;
            let [kind, a, b, c, body @ ..] = rest else { return None };
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let body = body.get(..length)?;
            let message = match *kind {
                CLIENT_HELLO => client_hello(body).ok(),
                SERVER_HELLO => server_hello(body).ok(),
                ENCRYPTED_EXTENSIONS => {
                    let mut r = Reader::new(body);
                    hello_in(&mut r).ok().map(|hello| Message::Extensions { hello })
                }
                _ => None,
            };
            self.read += 4 + length;
            if message.is_some() {
                return message;
            }
        }
    }
}

/// RFC 8446 section 4.1.2.
fn client_hello(body: &[u8]) -> Result<Message, WireError> {
    let mut r = Reader::new(body);
    r.u16("legacy version")?;
    let random = r.array("random")?;
    let session = r.u8("length of the session id")?;
    r.bytes(session.into(), "session id")?;
    let suites = r.u16("length of the suites")?;
    r.bytes(suites.into(), "suites")?;
    let methods = r.u8("length of the compression methods")?;
    r.bytes(methods.into(), "compression methods")?;
    Ok(Message::Client { random, hello: hello_in(&mut r)? })
}

/// RFC 8446 section 4.1.3; a HelloRetryRequest names the suite, too.
fn server_hello(body: &[u8]) -> Result<Message, WireError> {
    let mut r = Reader::new(body);
    r.u16("legacy version")?;
    r.array::<32>("random")?;
    let session = r.u8("length of the session id")?;
    r.bytes(session.into(), "session id")?;
    Ok(Message::Server { suite: Suite::from_number(r.u16("suite")?) })
}

/// The Hello in a list of extensions.
fn hello_in(r: &mut Reader<'_>) -> Result<Option<Vec<u8>>, WireError> {
    let length = r.u16("length of the extensions")?;
    let mut r = Reader::new(r.bytes(length.into(), "extensions")?);
    while !r.is_empty() {
        let number = r.u16("extension")?;
        let length = r.u16("length of an extension")?;
        let bytes = r.bytes(length.into(), "extension")?;
        if number == HELLO_EXTENSION {
            return Ok(Some(bytes.to_vec()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pieces of a stream in any order, also twice, come to the same stream.
        #[test]
        fn pieces_come_to_a_whole(
            whole in proptest::collection::vec(any::<u8>(), 1..400),
            cuts in proptest::collection::vec((0usize..400, 1usize..90), 0..40),
        ) {
            let mut stream = Stream::default();
            for (at, length) in cuts {
                let at = at.min(whole.len());
                stream.add(at as u32, &whole[at..(at + length).min(whole.len())]);
                prop_assert!(whole.starts_with(&stream.whole));
            }
            stream.add(0, &whole);
            prop_assert_eq!(&stream.whole, &whole);
            prop_assert_eq!(stream.apart_bytes, 0);
        }

        /// Any bytes are read without harm, and to an end.
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut stream = Stream::default();
            stream.add(0, &bytes);
            while stream.next_message().is_some() {}
            prop_assert!(stream.read <= bytes.len());
        }
    }

    #[test]
    fn a_stream_is_bounded() {
        let mut stream = Stream::default();
        for place in 0..2000 {
            stream.add(place * 2000 + 1, &[0; 1500]);
        }
        assert!(stream.apart_bytes <= STREAM_BYTES_MAX);
        for place in 0..500 {
            stream.add(place * 1500, &[0; 1500]);
        }
        assert!(stream.whole.len() <= STREAM_BYTES_MAX);
    }
}
