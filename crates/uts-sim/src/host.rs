//! The engine as an application of a network.

use crate::network::Application;
use crate::packet::{Body, Datagram, Packet};
use crate::qlog::Qlog;
use std::net::SocketAddr;
use uts_engine::{ConnectionHandle, Ecn, Endpoint, Event};
use uts_functions::Time;

/// An endpoint at a port of a host.
///
/// Its driver takes events by [`Host::poll_event`] whenever the network has touched it.
pub struct Host {
    endpoint: Endpoint,
    /// The batch of datagrams that is being sent.
    buffer: Vec<u8>,
    batch: Option<Batch>,
    qlog: Option<Qlog>,
}

struct Batch {
    remote: SocketAddr,
    ecn: Option<Ecn>,
    segment_bytes: usize,
    /// How much of the buffer has been sent.
    sent: usize,
}

impl Host {
    /// A host with this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        Host { endpoint, buffer: Vec::new(), batch: None, qlog: None }
    }

    /// The endpoint, to look at or to change. Reach it through [`Network::app_mut`](crate::network::Network::app_mut),
    /// so that what a change makes due is done.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The endpoint, to look at.
    pub fn peek(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next thing to tell the application.
    pub fn poll_event(&mut self, now: Time) -> Option<(ConnectionHandle, Event)> {
        let (handle, event) = self.endpoint.poll_event()?;
        if let Some(qlog) = &mut self.qlog {
            qlog.on_event(now, &mut self.endpoint, handle, &event);
        }
        Some((handle, event))
    }

    /// Logs connections that are established from now on. It changes nothing of what the host does.
    pub fn record(&mut self, qlog: Qlog) {
        self.qlog = Some(qlog);
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The first error that the writer gave.
    pub fn finish_record(&mut self) -> std::io::Result<()> {
        let Some(mut qlog) = self.qlog.take() else { return Ok(()) };
        qlog.on_packets(&mut self.endpoint);
        qlog.finish()
    }

    fn on_change(&mut self) {
        if let Some(qlog) = &mut self.qlog {
            qlog.on_packets(&mut self.endpoint);
        }
    }
}

impl Application for Host {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        if let Body::Bytes(mut bytes) = packet.body {
            self.endpoint.handle_datagram(now, packet.from.into(), packet.ecn, &mut bytes);
            self.on_change();
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        self.on_change();
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        if self.batch.is_none() {
            let transmit = self.endpoint.poll_transmit(now, &mut self.buffer);
            self.on_change();
            let transmit = transmit?;
            self.batch = Some(Batch {
                remote: transmit.remote,
                ecn: transmit.ecn,
                segment_bytes: transmit.segment_bytes.max(1),
                sent: 0,
            });
        }
        let batch = self.batch.as_mut()?;
        let end = self.buffer.len().min(batch.sent + batch.segment_bytes);
        let body = Body::Bytes(self.buffer[batch.sent..end].to_vec());
        let datagram = Datagram { to: batch.remote, ecn: batch.ecn, body };
        batch.sent = end;
        if end == self.buffer.len() {
            self.batch = None;
        }
        Some(datagram)
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }
}
