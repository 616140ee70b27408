//! UDP with segmentation offload, a window, and an acknowledgement for each 64 KiB: the least that
//! a transport needs. Nothing is repeated, checked or protected. Every segment begins with the
//! position behind its last byte.

use super::{
    Expense, Meter, Outcome, PACKET_BYTES, SOCKET_BUFFER_BYTES, Stopwatch, Task, Work, announce, lacks,
};
use anyhow::{Context, Result, bail};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Segments of a batch: as many full packets as a datagram of 64 KiB holds.
const BATCH_SEGMENTS: usize = 44;

/// Bytes that may be on their way.
const WINDOW_BYTES: u64 = 1 << 20;

const ACKNOWLEDGE_BYTES: u64 = 64 << 10;

/// The position that says that nothing follows.
const END: u64 = u64::MAX;

/// Without an acknowledgement for this long, what is on its way is taken for lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// How often the end is said.
const ENDS_MAX: usize = 50;

fn socket(ip: IpAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(ip, 0)), Type::DGRAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.bind(&SocketAddr::new(ip, 0).into())?;
    Ok(socket.into())
}

/// Segmentation offload, in a thread that blocks.
fn offload(socket: &UdpSocket) -> Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into()).context("UDP segmentation offload")?;
    socket.set_nonblocking(false)?;
    Ok(state)
}

fn position(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let socket = socket(ip)?;
    announce(socket.local_addr()?, String::new())?;
    match task.work {
        Work::Bulk => serve_bulk(task, &socket),
        Work::Ping | Work::Spin => echo(task, &socket),
        _ => Err(lacks(task)),
    }
}

fn echo(task: &Task, socket: &UdpSocket) -> Result<Outcome> {
    socket.set_nonblocking(task.work == Work::Spin)?;
    let mut byte = [0; 16];
    loop {
        let (bytes, from) = receive(task, || socket.recv_from(&mut byte))?;
        if bytes != 1 {
            return Ok(Outcome::default());
        }
        socket.send_to(&byte[..1], from)?;
    }
}

/// Receives; where waiting means looking again and again, until there is something.
fn receive<R>(task: &Task, mut once: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match once() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && task.work == Work::Spin => {
                std::hint::spin_loop();
            }
            other => return other,
        }
    }
}

fn serve_bulk(task: &Task, socket: &UdpSocket) -> Result<Outcome> {
    let state = offload(socket)?;
    let (mut buffer, mut meta) = (vec![0; 64 << 10], [RecvMeta::default()]);
    let (mut meter, mut highest, mut acknowledged) = (Meter::new(task), 0, 0);
    loop {
        state.recv(socket.into(), &mut [IoSliceMut::new(&mut buffer)], &mut meta)?;
        let [RecvMeta { addr, len, stride, .. }] = meta;
        let contents = &buffer[..len];
        let last = contents.chunks(stride.max(1)).filter_map(position).max().unwrap_or(0);
        if last == END {
            socket.send_to(&END.to_le_bytes(), addr)?;
            let lost_packets = (highest - meter.bytes.min(highest)) / PACKET_BYTES as u64;
            return Ok(Outcome { lost_packets, ..meter.finish()? });
        }
        meter.add(len)?;
        highest = highest.max(last);
        if highest - acknowledged >= ACKNOWLEDGE_BYTES {
            acknowledged = highest;
            socket.send_to(&acknowledged.to_le_bytes(), addr)?;
        }
    }
}

pub fn call(task: &Task, to: SocketAddr) -> Result<Outcome> {
    let any = SocketAddr::new(if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() }, 0);
    let socket = socket(any.ip())?;
    match task.work {
        Work::Bulk => call_bulk(task, &socket, to),
        Work::Ping | Work::Spin => ping(task, &socket, to),
        _ => Err(lacks(task)),
    }
}

fn call_bulk(task: &Task, socket: &UdpSocket, to: SocketAddr) -> Result<Outcome> {
    let state = offload(socket)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut batch = vec![0x5a; BATCH_SEGMENTS * PACKET_BYTES];
    let (mut expense, mut acknowledged) = (Expense::start(task)?, 0);
    while expense.goes_on() {
        while expense.bytes - acknowledged + batch.len() as u64 > WINDOW_BYTES {
            acknowledged = acknowledgement(socket)?.unwrap_or(expense.bytes).max(acknowledged);
        }
        for segment in batch.chunks_mut(PACKET_BYTES) {
            expense.bytes += segment.len() as u64;
            segment[..8].copy_from_slice(&expense.bytes.to_le_bytes());
        }
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: &batch,
            segment_size: Some(PACKET_BYTES),
            src_ip: None,
        };
        state.try_send(socket.into(), &transmit)?;
    }
    for _ in 0..ENDS_MAX {
        socket.send_to(&END.to_le_bytes(), to)?;
        while let Some(acknowledged) = acknowledgement(socket)? {
            if acknowledged == END {
                return expense.finish();
            }
        }
    }
    bail!("the receiver does not answer")
}

/// The next acknowledgement; `None` if none comes.
fn acknowledgement(socket: &UdpSocket) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    match socket.recv(&mut bytes) {
        Ok(_) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn ping(task: &Task, socket: &UdpSocket, to: SocketAddr) -> Result<Outcome> {
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    socket.set_nonblocking(task.work == Work::Spin)?;
    let mut stopwatch = Stopwatch::start(task)?;
    let mut byte = [0];
    while stopwatch.again() {
        socket.send_to(&byte, to)?;
        receive(task, || socket.recv(&mut byte)).context("no answer")?;
        stopwatch.back();
    }
    socket.send_to(b"end", to)?;
    stopwatch.finish()
}
