//! Streams of other programs over UTS: a client's standard input and output, or what connects to
//! it, carried to a service behind a server.
//!
//! A client asks for the service `pipe` in the handshake. Each flow of the connection is a stream.
//! It begins with a request: a byte 1 (the version), a byte of length, and the name of a service of
//! the server's. The server connects to that service, and answers: a byte (0 = it is there, 1 = it
//! is not), a byte of length, and a reason. Bytes follow both ways. Each direction ends by itself.

mod permitted;
mod server;

pub use permitted::{Permitted, Service};
pub use server::serve;

use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a client asks for in the handshake.
pub const SERVICE: &str = "pipe";

const VERSION: u8 = 1;

/// The longest name of a service, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// A stream is kept for so long while nothing is heard of the peer: a lid that is closed, a train
/// in a tunnel.
pub const SILENCE_MAX: Duration = Duration::from_secs(600);

/// What is read at once, and what waits for a slow reader.
const CHUNK_BYTES: usize = 64 << 10;

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

/// Answers a request; an error is why not.
async fn answer(send: &mut (impl AsyncWrite + Unpin), result: Result<(), &str>) -> io::Result<()> {
    let mut answer = vec![u8::from(result.is_err())];
    put_text(&mut answer, result.err().unwrap_or_default(), u8::MAX.into());
    send.write_all(&answer).await?;
    send.flush().await
}

/// Reads the answer to a request. The inner error is why the service is not there.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if it is no answer.
pub async fn read_answer(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<(), String>> {
    let status = recv.read_u8().await?;
    let why = read_text(recv).await?;
    match status {
        0 => Ok(Ok(())),
        1 => Ok(Err(why)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of kind {status}"))),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let text = &text[..text.floor_char_boundary(most)];
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

async fn read_text(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut text = vec![0; recv.read_u8().await?.into()];
    recv.read_exact(&mut text).await?;
    String::from_utf8(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "text that is not UTF-8"))
}

/// Copies what comes until its end, which is passed on. What has come is passed on before more is
/// waited for.
///
/// # Errors
/// Those of both ends.
pub async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<u64> {
    let mut from = tokio::io::BufReader::with_capacity(CHUNK_BYTES, from);
    let bytes = tokio::io::copy_buf(&mut from, to).await?;
    to.shutdown().await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_and_answers_are_read_as_they_were_written() {
        let (mut a, mut b) = tokio::io::duplex(1000);
        ask(&mut a, "ssh").await.unwrap();
        assert_eq!(read_request(&mut b).await.unwrap(), "ssh");
        answer(&mut b, Ok(())).await.unwrap();
        assert_eq!(read_answer(&mut a).await.unwrap(), Ok(()));
        let long = "é".repeat(300);
        answer(&mut b, Err(&long)).await.unwrap();
        let why = read_answer(&mut a).await.unwrap().unwrap_err();
        assert!(why.len() <= 255 && long.starts_with(&why), "{why}");
    }

    #[tokio::test]
    async fn what_is_no_request_or_answer_is_said_in_words() {
        for (bytes, says) in
            [(&[2, 0][..], "version 2"), (&[1, 2, 0xff, 0xff], "UTF-8"), (&[1, 9, b'a'], "early eof")]
        {
            let error = read_request(&mut &*bytes).await.unwrap_err();
            assert!(error.to_string().contains(says), "{bytes:?}: {error}");
        }
        let error = read_answer(&mut &[7, 0][..]).await.unwrap_err();
        assert!(error.to_string().contains("kind 7"), "{error}");
    }
}
