//! Work of today's engine for a packet, beside the instructions of table 2.2: two endpoints in
//! memory hand each other single packets, and each step is timed by itself.

use super::stopwatch::{Spread, overhead_ns, time};
use crate::engine::{ask, carried};
use crate::paper::{Series, push};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use core::time::Duration;
use std::net::SocketAddr;
use uts_engine::{ConnectionConfig, ConnectionHandle, Endpoint, Event, FlowId, Read, WriteError};
use uts_functions::Time;
use uts_sim::pair::Pair;

/// Instructions of table 2.2 for a data packet that is received: IP, the common path of TCP,
/// sequencing, the window field, the layer of buffers.
pub const DATA_INSTRUCTIONS: [f64; 5] = [57.0, 154.0, 15.0, 17.0, 35.0];
/// The same for an acknowledgement: IP, the common path, the acknowledgement, the window, the
/// congestion window, the round trip, the layer of buffers.
pub const ACK_INSTRUCTIONS: [f64; 7] = [57.0, 154.0, 9.0, 20.0, 17.0, 44.0, 30.0];
/// Instructions that the chip of section 2.1.3 does in a microsecond.
const MIPS: f64 = 10.0;
/// Data of a packet over FDDI, which the thesis does not say.
const FDDI_BYTES: f64 = 4000.0;
/// Times that 32 bits of a packet cross the memory.
const MEMORY_CYCLES: f64 = 4.0;

/// Bytes of data in a small packet and in a full one, as in tables 3.3 to 3.5.
pub const SIZES: [usize; 2] = [1, 1400];
/// Packets of a size that are timed.
const PACKETS: usize = 4000;
/// Bytes that are carried before, so that windows are open and the path's packet size is known.
const WARM_UP_BYTES: u64 = 4 << 20;
/// Time between two packets.
const GAP: Duration = Duration::from_micros(20);
/// Waits in a row for window or pacing, after which nothing will leave any more.
const WAITS_MAX: usize = 1000;

/// Nanoseconds of each step, by packet.
#[derive(Default)]
pub struct Steps {
    /// Data is written, and a packet made of it.
    pub send: Vec<f64>,
    /// The packet is taken in.
    pub receive: Vec<f64>,
    /// The application takes what came.
    pub read: Vec<f64>,
    /// The receiver makes an acknowledgement.
    pub ack: Vec<f64>,
    /// The sender takes it in.
    pub on_ack: Vec<f64>,
}

/// A client that sends single packets to a server.
pub struct Ends {
    pair: Pair,
    handle: ConnectionHandle,
    flow: FlowId,
    addresses: [SocketAddr; 2],
    buffer: Vec<u8>,
    report: Vec<u8>,
}

impl Ends {
    /// Connected, warmed up and at rest. Packets are sealed, or have a CRC-32C.
    ///
    /// # Errors
    /// The connection does not come to be.
    pub fn new(is_sealed: bool) -> Result<Self> {
        let mut config = ConnectionConfig::default();
        let security = if is_sealed { "uts.security=required" } else { "uts.security=unprotected" };
        ask(&mut config.requirements, [security, "uts.adapt=off"])?;
        let (mut pair, handle, flow) = carried(config, Duration::from_micros(100), WARM_UP_BYTES)?;
        pair.pass(pair.now + Duration::from_secs(2))?;
        let to_server = pair.client.peek(handle).context("the connection is gone")?.remote();
        let accepted = pair.server.handles().next().context("the server has no connection")?;
        let to_client = pair.server.peek(accepted).context("the connection is gone")?.remote();
        Ok(Ends {
            pair,
            handle,
            flow,
            addresses: [to_client, to_server],
            buffer: Vec::new(),
            report: Vec::new(),
        })
    }

    /// Sends packets of so many bytes one behind the other, and their acknowledgements back.
    ///
    /// # Errors
    /// An end closes, or nothing leaves any more.
    pub fn carry(&mut self, bytes: usize, packets: usize) -> Result<Steps> {
        let (data, mut steps) = (Bytes::from(vec![0x5a; bytes]), Steps::default());
        for _ in 0..packets {
            self.send(&data, &mut steps)?;
            self.pair.now += GAP;
            let now = self.pair.now;
            let [client, _] = self.addresses;
            let ((), took) = time(|| take_packet(&mut self.pair.server, now, client, &mut self.buffer));
            steps.receive.push(took);
            let (read, took) = time(|| read_data(&mut self.pair.server, now));
            ensure!(read? == bytes, "a packet of {bytes} bytes did not come alone");
            steps.read.push(took);
            self.acknowledge(&mut steps)?;
            self.pair.now += GAP;
        }
        Ok(steps)
    }

    /// A packet, once window and pacing let it go.
    fn send(&mut self, data: &Bytes, steps: &mut Steps) -> Result<()> {
        let Ends { pair, handle, flow, buffer, .. } = self;
        let (sent, took) = time(|| send_packet(&mut pair.client, *handle, pair.now, *flow, data, buffer));
        if sent? {
            steps.send.push(took);
            return Ok(());
        }
        for _ in 0..WAITS_MAX {
            self.pair.now += GAP;
            self.pair.client.handle_timeout(self.pair.now);
            self.pair.server.handle_timeout(self.pair.now);
            self.acknowledge(steps)?;
            if self.pair.client.poll_transmit(self.pair.now, &mut self.buffer).is_some() {
                return Ok(());
            }
        }
        bail!("no packet leaves at {:?}", self.pair.now)
    }

    /// An acknowledgement of the server, if one is due.
    fn acknowledge(&mut self, steps: &mut Steps) -> Result<()> {
        let (now, [_, server]) = (self.pair.now, self.addresses);
        let (is_due, took) = time(|| send_ack(&mut self.pair.server, now, &mut self.report));
        if is_due {
            steps.ack.push(took);
            let ((), took) = time(|| take_ack(&mut self.pair.client, now, server, &mut self.report));
            steps.on_ack.push(took);
        }
        while let Some((_, event)) = self.pair.client.poll_event() {
            ensure!(!matches!(event, Event::Closed(_)), "the client has closed");
        }
        Ok(())
    }
}

// The steps are functions of their own, so that a counter of instructions finds them.

#[inline(never)]
fn send_packet(
    client: &mut Endpoint,
    handle: ConnectionHandle,
    now: Time,
    flow: FlowId,
    data: &Bytes,
    buffer: &mut Vec<u8>,
) -> Result<bool> {
    let connection = client.connection(handle).context("the connection is gone")?;
    match connection.write(now, flow, data.clone()) {
        Ok(written) => ensure!(written == data.len(), "a packet was cut"),
        Err(WriteError::Blocked) => bail!("no room for a packet"),
        Err(error) => bail!("{error}"),
    }
    Ok(client.poll_transmit(now, buffer).is_some())
}

#[inline(never)]
fn take_packet(server: &mut Endpoint, now: Time, from: SocketAddr, packet: &mut [u8]) {
    let bytes = packet.len();
    server.take_in(now, from, None, None, bytes, packet);
    server.taken_in(now);
}

#[inline(never)]
fn read_data(server: &mut Endpoint, now: Time) -> Result<usize> {
    let mut bytes = 0;
    while let Some((handle, event)) = server.poll_event() {
        match event {
            Event::Readable(flow) => {
                let connection = server.connection(handle).context("the connection is gone")?;
                while let Ok(Read::Bytes(_, data)) = connection.read(now, flow, 1 << 20) {
                    bytes += data.len();
                }
            }
            Event::Closed(reason) => bail!("the server has closed: {reason}"),
            _ => {}
        }
    }
    Ok(bytes)
}

#[inline(never)]
fn send_ack(server: &mut Endpoint, now: Time, buffer: &mut Vec<u8>) -> bool {
    server.poll_transmit(now, buffer).is_some()
}

#[inline(never)]
fn take_ack(client: &mut Endpoint, now: Time, from: SocketAddr, packet: &mut [u8]) {
    let bytes = packet.len();
    client.take_in(now, from, None, None, bytes, packet);
    client.taken_in(now);
}

/// Nanoseconds of each step, for both sizes.
///
/// # Errors
/// The connection ends.
pub fn steps(is_sealed: bool) -> Result<Series> {
    let (mut series, mut ends) = (Series::new(), Ends::new(is_sealed)?);
    let clock_ns = overhead_ns();
    for bytes in SIZES {
        ends.carry(bytes, PACKETS / 10)?;
        let Steps { send, receive, read, ack, on_ack } = ends.carry(bytes, PACKETS)?;
        // Each of the two is timed by itself.
        let both = receive.iter().zip(&read).map(|(receive, read)| receive + read - clock_ns).collect();
        for (name, values) in [("received", both), ("sent", send), ("ack", ack), ("on-ack", on_ack)] {
            Spread::of(values).less(clock_ns).push(&mut series, name);
        }
        push(&mut series, [("bytes", bytes as f64)]);
    }
    Ok(series)
}

/// Instructions of table 2.2 for a data packet and for an acknowledgement, and the Mbit/s that
/// section 2.1.3 has for them, and for memory of either speed.
///
/// # Errors
/// None.
pub fn published() -> Result<Series> {
    let [data, ack] = [DATA_INSTRUCTIONS.iter().sum::<f64>(), ACK_INSTRUCTIONS.iter().sum()];
    let control_us = (data + ack) / MIPS;
    let mut series = Series::new();
    push(
        &mut series,
        [("data-us", data / MIPS), ("ack-us", ack / MIPS), ("mbps", FDDI_BYTES * 8.0 / control_us)],
    );
    for memory_ns in [250.0, 70.0] {
        push(&mut series, [("memory", memory_ns), ("memory-mbps", 32.0 / (MEMORY_CYCLES * memory_ns) * 1e3)]);
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_comes_alone_and_is_read_whole() {
        for is_sealed in [false, true] {
            let mut ends = Ends::new(is_sealed).expect("connected");
            for bytes in SIZES {
                let steps = ends.carry(bytes, 50).expect("carried");
                assert_eq!((steps.receive.len(), steps.read.len()), (50, 50));
                assert!(steps.send.len() <= 50 && steps.ack.len() == steps.on_ack.len());
                assert!(!steps.ack.is_empty(), "none is acknowledged");
            }
        }
    }
}
