//! Streams of other programs over UTS: a client's standard input and output, or what connects to
//! it, carried to a service behind a server.
//!
//! A client asks for the service `pipe` in the handshake. Each flow of the connection is a stream.
//! It begins with a request: a byte 1 (the version), a byte of length, and the name of a service of
//! the server's. The server connects to that service, and answers (see [`crate::stream`]). Bytes
//! follow both ways. Each direction ends by itself.

mod permitted;
mod server;

pub use permitted::{Permitted, Service};
pub use server::serve;

use crate::stream::{put_text, read_text};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a client asks for in the handshake.
pub const SERVICE: &str = "pipe";

const VERSION: u8 = 1;

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

/// Reads what a client asks for.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if it is no request of this version.
async fn read_request(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let version = recv.read_u8().await?;
    if version != VERSION {
        let why = format!("a request of version {version}; this server speaks version {VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    read_text(recv).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_read_as_they_were_written() {
        let (mut a, mut b) = tokio::io::duplex(1000);
        ask(&mut a, "ssh").await.unwrap();
        assert_eq!(read_request(&mut b).await.unwrap(), "ssh");
    }

    #[tokio::test]
    async fn what_is_no_request_is_said_in_words() {
        for (bytes, says) in
            [(&[2, 0][..], "version 2"), (&[1, 2, 0xff, 0xff], "UTF-8"), (&[1, 9, b'a'], "early eof")]
        {
            let error = read_request(&mut &*bytes).await.unwrap_err();
            assert!(error.to_string().contains(says), "{bytes:?}: {error}");
        }
    }
}
