//! Requests of a client: a byte 1 (the version), a byte that says what it wants (0 = to send, 1 =
//! to receive), a byte of length and the name of the stream, and properties of what the server
//! sends to it, as those of a tunnel ([`uts_tunnel::wire`]). An answer follows
//! ([`uts_tunnel::stream`]). Then, as often as the client likes, properties and an answer. (V-9)

use super::NAME_BYTES_MAX;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};
use uts_tunnel::stream::{put_text, read_text};
use uts_tunnel::wire::{put_properties, read_properties};

const VERSION: u8 = 1;

/// Part of a client in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends the stream.
    Send,
    /// It receives it.
    Receive,
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its part.
    pub role: Role,
    /// Name of the stream.
    pub name: String,
    /// Properties of what the server sends to it.
    pub properties: Vec<(String, String)>,
}

impl Asked {
    /// The bytes that the flow of requests begins with.
    pub fn emit(&self) -> Vec<u8> {
        let role = match self.role {
            Role::Send => 0,
            Role::Receive => 1,
        };
        let mut out = vec![VERSION, role];
        put_text(&mut out, &self.name, NAME_BYTES_MAX);
        put_properties(&mut out, &self.properties);
        out
    }

    /// Reads a request.
    ///
    /// # Errors
    /// Those of the flow; [`io::ErrorKind::InvalidData`] if it is none of this version.
    pub async fn read(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Asked> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let version = recv.read_u8().await?;
        if version != VERSION {
            let why = format!("a request of version {version}; this server speaks version {VERSION}");
            return Err(wrong(why));
        }
        let role = match recv.read_u8().await? {
            0 => Role::Send,
            1 => Role::Receive,
            other => {
                return Err(wrong(format!("a request of kind {other}; 0 sends a stream, 1 receives one")));
            }
        };
        let name = read_text(recv).await?;
        check_name(&name).map_err(wrong)?;
        Ok(Asked { role, name, properties: read_properties(recv).await? })
    }
}

/// Checks the name of a stream.
///
/// # Errors
/// What it has to be, in one line.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    is_good.then_some(()).ok_or_else(|| {
        format!("the name of a stream has 1 to {NAME_BYTES_MAX} bytes, and no control characters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(mut bytes: &[u8]) -> io::Result<(Asked, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let asked = runtime.block_on(Asked::read(&mut bytes))?;
        Ok((asked, bytes.len()))
    }

    proptest! {
        #[test]
        fn requests_are_read_as_they_were_written(
            is_sender: bool,
            name in "[^\\p{C}]{1,16}",
            properties in prop::collection::vec(("[a-zA-Z.]{1,40}", "[ -~]{0,40}"), 0..8),
        ) {
            let role = if is_sender { Role::Send } else { Role::Receive };
            let asked = Asked { role, name, properties };
            let mut bytes = asked.emit();
            bytes.push(9);
            prop_assert_eq!(read(&bytes).unwrap(), (asked, 1));
        }

        #[test]
        fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn what_is_no_request_is_said() {
        for (bytes, says) in [
            (&[2, 0, 1, b'a', 0][..], "version 2"),
            (&[1, 7, 1, b'a', 0], "kind 7"),
            (&[1, 0, 0, 0], "1 to 64 bytes"),
            (&[1, 0, 1, b'\n', 0], "control characters"),
            (&[1, 0, 1, b'a', 9], "9 properties"),
        ] {
            let why = read(bytes).expect_err(says).to_string();
            assert!(why.contains(says), "{why}");
        }
    }
}
