//! Streams of other programs over UTS: a client's standard input and output, or what connects to
//! it, carried to a service behind a server.
//!
//! A client asks for the service `pipe` in the handshake. Each flow of the connection is a stream.
//! It begins with a request: a byte 1 (the version), a byte of length, and the name of a service of
//! the server's. The server connects to that service, and answers (see [`crate::stream`]). Bytes
//! follow both ways. Each direction ends by itself. With version 2 the flow is one carrier of a
//! stream that outlives it (see [`crate::resumed`]). (V-3)

mod permitted;
mod server;

pub use permitted::{Permitted, Service};
pub use server::{Owner, Pipes, connect};

use crate::resumed::Hello;
use crate::stream::{put_text, read_text};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Service that a client asks for in the handshake.
pub const SERVICE: &str = "pipe";

/// Memory that one end has for each direction of a stream that outlives its flows, in bytes.
/// Chosen: 100 Mbit/s over half a second. A client of a server pays for what is held.
pub const WINDOW_BYTES: usize = 8 << 20;

/// Versions of a request: of a stream that is the flow, and of one that the flow carries.
const VERSION: u8 = 1;
const VERSION_RESUMABLE: u8 = 2;

/// The longest name of a service, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Asks for a service.
///
/// # Errors
/// Those of the flow.
pub async fn ask(send: &mut (impl AsyncWrite + Unpin), name: &str) -> io::Result<()> {
    let mut request = vec![VERSION];
    put_text(&mut request, name, NAME_BYTES_MAX);
    send.write_all(&request).await?;
    send.flush().await
}

/// The request of a carrier for a stream that outlives it.
pub fn resumable_request(name: &str, hello: &Hello) -> Vec<u8> {
    let mut request = vec![VERSION_RESUMABLE];
    put_text(&mut request, name, NAME_BYTES_MAX);
    hello.emit(&mut request);
    request
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    /// Name of the service.
    pub service: String,
    /// Words about the stream, if it is one that outlives the flow.
    pub hello: Option<Hello>,
}

/// Reads what a client asks for.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if it is no request of these versions.
pub async fn read_request(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Asked> {
    let version = recv.read_u8().await?;
    if ![VERSION, VERSION_RESUMABLE].contains(&version) {
        let why =
            format!("a request of version {version}; this server speaks {VERSION} and {VERSION_RESUMABLE}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let service = read_text(recv).await?;
    let hello = if version == VERSION { None } else { Some(Hello::read(recv).await?) };
    Ok(Asked { service, hello })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_read_as_they_were_written() {
        let (mut a, mut b) = tokio::io::duplex(1000);
        ask(&mut a, "ssh").await.unwrap();
        assert_eq!(read_request(&mut b).await.unwrap(), Asked { service: "ssh".into(), hello: None });
        let ticket = crate::resumed::Ticket::generate().unwrap();
        let hello = Hello { ticket, is_new: true, number: 1, received: 0, window: 9, silence_s: 1 };
        let request = resumable_request("git", &hello);
        let asked = read_request(&mut &request[..]).await.unwrap();
        assert_eq!(asked, Asked { service: "git".into(), hello: Some(hello) });
    }

    #[tokio::test]
    async fn what_is_no_request_is_said_in_words() {
        for (bytes, says) in
            [(&[3, 0][..], "version 3"), (&[1, 2, 0xff, 0xff], "UTF-8"), (&[1, 9, b'a'], "early eof")]
        {
            let error = read_request(&mut &*bytes).await.unwrap_err();
            assert!(error.to_string().contains(says), "{bytes:?}: {error}");
        }
    }
}
