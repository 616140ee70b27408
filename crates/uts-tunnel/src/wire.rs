//! Beginning of a flow of a tunnel: a byte 1 (the version), a byte that says what is asked, a
//! number of a forward (two bytes), a host (a byte of length, and text), a port (two bytes), and
//! properties: a byte that counts them, and for each a name and a value (a byte of length, and
//! text). Numbers are in network order.
//!
//! In a flow of bytes an answer follows (see [`crate::stream`]). In a flow of messages each message
//! begins with a byte: see [`crate::datagrams`]. (V-4)

use crate::forward::{HOST_BYTES_MAX, Place, Protocol};
use crate::stream::{put_text, read_text};
use std::fmt;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

const VERSION: u8 = 1;

/// The most properties that may be asked of what the other end sends in a flow.
pub const PROPERTIES_MAX: usize = 8;

/// The longest name, or value, of a property, in bytes.
const PROPERTY_BYTES_MAX: usize = 120;

const CONNECT: u8 = 0;
const LISTEN: u8 = 1;
const ARRIVED: u8 = 2;
const ASK: u8 = 3;
/// Set for datagrams.
const UDP: u8 = 0x80;

/// Request at the beginning of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Of a server: to connect to a place.
    Connect(Protocol, Place),
    /// Of a server: to listen at a place, as long as the flow is open. The number is named by what
    /// arrives there. The answer has the port.
    Listen(Protocol, u16, Place),
    /// Of a client: to connect where the forward of this number leads.
    Arrived(Protocol, u16),
    /// Of a server: to ask the properties of all that it sends in the connection.
    Properties,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Connect(protocol, place) => write!(f, "{}{place}", protocol.prefix()),
            Asked::Listen(protocol, _, place) => write!(f, "listening at {}{place}", protocol.prefix()),
            Asked::Arrived(protocol, number) => write!(f, "{}forward {number}", protocol.prefix()),
            Asked::Properties => f.write_str("properties"),
        }
    }
}

/// Beginning of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Request to the other end.
    pub asked: Asked,
    /// Properties that are asked of what the other end sends in the flow.
    pub properties: Vec<(String, String)>,
}

impl Opening {
    /// The bytes that a flow begins with. Properties that are too many or too long are left out.
    pub fn emit(&self) -> Vec<u8> {
        let nowhere = Place { host: String::new(), port: 0 };
        let (kind, protocol, number, place) = match &self.asked {
            Asked::Connect(protocol, place) => (CONNECT, *protocol, 0, place),
            Asked::Listen(protocol, number, place) => (LISTEN, *protocol, *number, place),
            Asked::Arrived(protocol, number) => (ARRIVED, *protocol, *number, &nowhere),
            Asked::Properties => (ASK, Protocol::Tcp, 0, &nowhere),
        };
        let mut out = vec![VERSION, kind | if protocol == Protocol::Udp { UDP } else { 0 }];
        out.extend_from_slice(&number.to_be_bytes());
        put_text(&mut out, &place.host, HOST_BYTES_MAX);
        out.extend_from_slice(&place.port.to_be_bytes());
        put_properties(&mut out, &self.properties);
        out
    }

    /// Reads the beginning of a flow; what follows is left.
    ///
    /// # Errors
    /// Those of the flow; [`io::ErrorKind::InvalidData`] if it is none of this version.
    pub async fn read(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Opening> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let version = recv.read_u8().await?;
        if version != VERSION {
            let why = format!("a tunnel of version {version}; this end speaks version {VERSION}");
            return Err(wrong(why));
        }
        let kind = recv.read_u8().await?;
        let protocol = if kind & UDP == 0 { Protocol::Tcp } else { Protocol::Udp };
        let number = recv.read_u16().await?;
        let place = Place { host: read_text(recv).await?, port: recv.read_u16().await? };
        let properties = read_properties(recv).await?;
        let is_place = !place.host.is_empty() && !place.host.contains(char::is_control);
        let asked = match kind & !UDP {
            CONNECT if is_place && place.port > 0 => Asked::Connect(protocol, place),
            LISTEN if is_place => Asked::Listen(protocol, number, place),
            ARRIVED => Asked::Arrived(protocol, number),
            ASK => Asked::Properties,
            CONNECT | LISTEN => return Err(wrong(format!("`{place}` is no place"))),
            _ => return Err(wrong(format!("a request of kind {kind}, which this version does not know"))),
        };
        Ok(Opening { asked, properties })
    }
}

/// Appends a byte that counts properties, and for each a name and a value (a byte of length, and
/// text). Those that are too many or too long are left out.
pub fn put_properties(out: &mut Vec<u8>, properties: &[(String, String)]) {
    let fits = |(name, value): &&(String, String)| name.len().max(value.len()) <= PROPERTY_BYTES_MAX;
    let properties: Vec<_> = properties.iter().filter(fits).take(PROPERTIES_MAX).collect();
    out.push(properties.len() as u8);
    for (name, value) in properties {
        put_text(out, name, PROPERTY_BYTES_MAX);
        put_text(out, value, PROPERTY_BYTES_MAX);
    }
}

/// Reads what [`put_properties`] has written.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if they are too many or too long.
pub async fn read_properties(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<(String, String)>> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let count = recv.read_u8().await?.into();
    if count > PROPERTIES_MAX {
        return Err(wrong(format!("{count} properties; {PROPERTIES_MAX} are the most")));
    }
    let mut properties = Vec::with_capacity(count);
    for _ in 0..count {
        let property = (read_text(recv).await?, read_text(recv).await?);
        if property.0.len().max(property.1.len()) > PROPERTY_BYTES_MAX {
            return Err(wrong(format!("a property of more than {PROPERTY_BYTES_MAX} bytes")));
        }
        properties.push(property);
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(mut bytes: &[u8]) -> io::Result<(Opening, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let opening = runtime.block_on(Opening::read(&mut bytes))?;
        Ok((opening, bytes.len()))
    }

    fn protocols() -> impl Strategy<Value = Protocol> {
        prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)]
    }

    fn asked() -> impl Strategy<Value = Asked> {
        let place = || ("[a-z0-9.:é-]{1,120}", 1..=u16::MAX).prop_map(|(host, port)| Place { host, port });
        prop_oneof![
            (protocols(), place()).prop_map(|(protocol, place)| Asked::Connect(protocol, place)),
            (protocols(), any::<u16>(), place()).prop_map(|(p, n, place)| Asked::Listen(p, n, place)),
            (protocols(), any::<u16>()).prop_map(|(protocol, number)| Asked::Arrived(protocol, number)),
            Just(Asked::Properties),
        ]
    }

    proptest! {
        #[test]
        fn an_opening_is_read_as_it_was_written_and_not_before_it_is_whole(
            asked in asked(),
            properties in proptest::collection::vec(("[a-zA-Z.]{1,120}", "[ -~]{0,120}"), 0..=PROPERTIES_MAX),
            rest in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let opening = Opening { asked, properties };
            let bytes = opening.emit();
            prop_assert_eq!(read(&[bytes.clone(), rest.clone()].concat()).unwrap(), (opening, rest.len()));
            for cut in 0..bytes.len() {
                prop_assert_eq!(read(&bytes[..cut]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            }
        }

        #[test]
        fn whatever_comes_is_an_opening_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok((opening, _)) = read(&bytes) {
                prop_assert_eq!(read(&opening.emit()).unwrap(), (opening, 0));
            }
            // Most of the time the first bytes are sound.
            let sound = [&[1, bytes.first().map_or(0, |b| b & 0x83)][..], &bytes].concat();
            if let Ok((opening, _)) = read(&sound) {
                prop_assert_eq!(read(&opening.emit()).unwrap(), (opening, 0));
            }
        }
    }

    #[test]
    fn what_is_no_opening_is_said_in_words() {
        let with = |kind: u8, host: &str, port: u8, count: u8| {
            [&[1, kind, 0, 0, host.len() as u8][..], host.as_bytes(), &[0, port, count]].concat()
        };
        for (bytes, says) in [
            (vec![2], "version 2; this end speaks version 1"),
            (with(9, "a", 1, 0), "kind 9"),
            (with(0, "", 1, 0), "no place"),
            (with(0, "a", 0, 0), "no place"),
            (with(0, "a\n", 1, 0), "no place"),
            (with(0, "a", 1, 9), "8 are the most"),
        ] {
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.contains(says), "{bytes:?}: {error}");
        }
    }
}
