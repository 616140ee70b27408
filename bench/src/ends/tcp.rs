//! Kernel TCP with CUBIC, from blocking sockets.

use super::{Expense, Meter, Outcome, Stopwatch, Task, WRITE_BYTES, Work, announce, lacks};
use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// A socket of TCP with CUBIC, for addresses of the kind of `ip`.
pub fn socket(ip: IpAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(ip, 0)), Type::STREAM, None)?;
    // Said explicitly: what a host has as its default differs.
    socket.set_tcp_congestion(b"cubic").context("TCP_CONGESTION cubic")?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let listener = socket(ip)?;
    listener.bind(&SocketAddr::new(ip, 0).into())?;
    listener.listen(1)?;
    let listener = TcpListener::from(listener);
    announce(listener.local_addr()?, String::new())?;
    let (mut stream, _) = listener.accept()?;
    match task.work {
        Work::Bulk => {
            let (mut buffer, mut meter) = (vec![0; 4 * WRITE_BYTES], Meter::new(task));
            loop {
                match stream.read(&mut buffer)? {
                    0 => return meter.finish(),
                    bytes => meter.add(bytes)?,
                }
            }
        }
        Work::Ping => {
            let mut byte = [0];
            while stream.read(&mut byte)? == 1 {
                stream.write_all(&byte)?;
            }
            Ok(Outcome::default())
        }
        _ => Err(lacks(task)),
    }
}

pub fn call(task: &Task, to: SocketAddr) -> Result<Outcome> {
    let socket = socket(to.ip())?;
    socket.connect(&to.into()).with_context(|| format!("no connection to {to}"))?;
    let mut stream = TcpStream::from(socket);
    match task.work {
        Work::Bulk => {
            let (buffer, mut expense) = (vec![0x5a; 4 * WRITE_BYTES], Expense::start(task)?);
            while expense.goes_on() {
                stream.write_all(&buffer)?;
                expense.bytes += buffer.len() as u64;
            }
            stream.shutdown(std::net::Shutdown::Write)?;
            // The server closes once it has read everything.
            stream.read_to_end(&mut Vec::new())?;
            expense.finish()
        }
        Work::Ping => {
            let mut stopwatch = Stopwatch::start(task)?;
            let mut byte = [0];
            while stopwatch.again() {
                stream.write_all(&byte)?;
                stream.read_exact(&mut byte)?;
                stopwatch.back();
            }
            stopwatch.finish()
        }
        _ => Err(lacks(task)),
    }
}
