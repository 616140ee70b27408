//! Calls of Rx over UDP, with this crate's peer or with one of OpenAFS: a request of a length and
//! so many bytes is answered by the bytes, twice.
//!
//! `rx_echo serve 127.0.0.1:7009` and `rx_echo call 127.0.0.1:7009 100000`
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program faces the world")]

use core::time::Duration;
use std::error::Error;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Instant, SystemTime};
use uts_rx::call::{Client, Places, Server};

const SERVICE: u16 = 147;
const BYTES_MAX: usize = 64_000_000;
/// Error code of a request that is not of its length.
const MALFORMED: i32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", address] => serve(address.parse()?),
        ["call", address, ref sizes @ ..] if !sizes.is_empty() => call(address.parse()?, sizes),
        _ => Err("usage: rx_echo serve ADDRESS:PORT | rx_echo call ADDRESS:PORT BYTES...".into()),
    }
}

/// Waits until something has come, or until it is time.
fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    wait: Duration,
) -> std::io::Result<Option<(usize, SocketAddr)>> {
    // A wait of zero would be one without end.
    socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
    match socket.recv_from(buffer) {
        Ok(received) => Ok(Some(received)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        // The answer of a host that has no such port.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(error),
    }
}

fn answer(request: Vec<u8>) -> Result<Vec<u8>, i32> {
    let (length, bytes) = request.split_first_chunk::<4>().ok_or(MALFORMED)?;
    if u32::from_be_bytes(*length) as usize != bytes.len() {
        return Err(MALFORMED);
    }
    Ok([bytes, bytes].concat())
}

fn serve(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind(address)?;
    let begun = Instant::now();
    let mut server = Server::new(SERVICE, Places { channels: 100, request_bytes: BYTES_MAX });
    let mut buffer = vec![0; 65_536];
    println!("serving on {}", socket.local_addr()?);
    loop {
        while let Some((to, bytes)) = server.poll_transmit(begun.elapsed()) {
            socket.send_to(&bytes, to)?;
        }
        let now = begun.elapsed();
        let wait = server.poll_timeout().map_or(Duration::from_secs(1), |at| at.saturating_sub(now));
        if let Some((len, from)) = receive(&socket, &mut buffer, wait)? {
            server.handle_datagram(begun.elapsed(), from, &buffer[..len], answer);
        }
        server.handle_timeout(begun.elapsed());
    }
}

fn call(address: SocketAddr, sizes: &[&str]) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() as u32;
    let mut client = Client::new(epoch, std::process::id() << 2, SERVICE, BYTES_MAX);
    let begun = Instant::now();
    let mut buffer = vec![0; 65_536];
    for size in sizes {
        let bytes: Vec<u8> = (0..size.parse::<u32>()?).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
        let from = begun.elapsed();
        client.call(from, [&(bytes.len() as u32).to_be_bytes()[..], &bytes].concat());
        let got = loop {
            while let Some(bytes) = client.poll_transmit(begun.elapsed()) {
                socket.send(&bytes)?;
            }
            let now = begun.elapsed();
            let wait = client.poll_timeout().map_or(Duration::ZERO, |at| at.saturating_sub(now));
            if let Some((len, _)) = receive(&socket, &mut buffer, wait)?
                && let Some(ended) = client.handle_datagram(begun.elapsed(), &buffer[..len])
            {
                break ended?;
            }
            if let Some(failure) = client.handle_timeout(begun.elapsed()) {
                return Err(failure.into());
            }
        };
        let is_right = got == [&bytes[..], &bytes].concat();
        println!("{size} bytes: {} came, {}", got.len(), if is_right { "right" } else { "WRONG" });
        if !is_right {
            return Err("the answer is another than was asked for".into());
        }
    }
    // What is left to be sent is the acknowledgement of the last answer.
    while let Some(bytes) = client.poll_transmit(begun.elapsed()) {
        socket.send(&bytes)?;
    }
    Ok(())
}
