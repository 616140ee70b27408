//! The engine as an application of a network.

use crate::cost::MechanismCost;
use crate::network::Application;
use crate::packet::{Body, Datagram, Packet};
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use uts_engine::{Connection, ConnectionHandle, Direction, Ecn, Endpoint, Event, TraceRow};
use uts_functions::Time;
use uts_qlog::Qlog;

/// An endpoint at a port of a host.
///
/// Its driver takes events by [`Host::poll_event`] whenever the network has touched it.
pub struct Host {
    endpoint: Endpoint,
    /// The batch of datagrams that is being sent.
    buffer: Vec<u8>,
    batch: Option<Batch>,
    observer: Option<Box<Observer>>,
    is_suspended: bool,
}

/// Observer of the host. It changes nothing of what the host does.
#[derive(Default)]
struct Observer {
    /// Connections that are established and not over.
    connections: BTreeSet<ConnectionHandle>,
    qlog: Option<Qlog>,
    /// Events of packets that were not yet taken, if they are to be kept.
    packets: Option<Vec<(ConnectionHandle, TraceRow, SenderState)>>,
    rows: Vec<TraceRow>,
}

/// The state that a sender goes by, once all is done that an event of a packet made due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderState {
    /// The congestion window; `None` if the profile has none.
    pub window_bytes: Option<u64>,
    /// The window at which slow start ends; `None` as long as nothing has set it.
    pub threshold_bytes: Option<u64>,
    /// Bytes that were sent, and were neither acknowledged nor taken for lost.
    pub in_flight_bytes: u64,
}

impl SenderState {
    fn of(connection: &Connection) -> Self {
        let window_bytes = connection.congestion().map(|(_, bytes)| bytes);
        SenderState {
            window_bytes: window_bytes.filter(|bytes| *bytes != u64::MAX),
            threshold_bytes: connection.slow_start_threshold(),
            in_flight_bytes: connection.in_flight_bytes(),
        }
    }
}

struct Batch {
    remote: SocketAddr,
    ecn: Option<Ecn>,
    segment_bytes: usize,
    /// Bytes of the buffer that have been sent.
    sent: usize,
}

impl Host {
    /// A host with this endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        Host { endpoint, buffer: Vec::new(), batch: None, observer: None, is_suspended: false }
    }

    /// The endpoint, to look at or to change. Reach it through
    /// [`Network::app_mut`](crate::network::Network::app_mut), which then does what the change
    /// makes due.
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
        if let Some(observer) = &mut self.observer {
            observer.on_event(now, &mut self.endpoint, handle, &event);
        }
        Some((handle, event))
    }

    /// Logs connections that are established from now on, with their handshakes.
    pub fn record(&mut self, qlog: Qlog) {
        self.endpoint.trace_all();
        self.observer.get_or_insert_default().qlog = Some(qlog);
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The first error that the writer gave.
    pub fn finish_record(&mut self) -> std::io::Result<()> {
        self.on_change();
        match self.observer.as_mut().and_then(|observer| observer.qlog.take()) {
            Some(qlog) => qlog.finish(),
            None => Ok(()),
        }
    }

    /// Keeps what packets do, of connections that are established from now on, for
    /// [`Host::take_packets`].
    pub fn keep_packets(&mut self) {
        self.observer.get_or_insert_default().packets.get_or_insert_default();
    }

    /// Events of packets since this was last asked, in order.
    pub fn take_packets(&mut self) -> Vec<(ConnectionHandle, TraceRow)> {
        self.take_packets_and_states().into_iter().map(|(handle, row, _)| (handle, row)).collect()
    }

    /// The same, each with what the sender went by then.
    pub fn take_packets_and_states(&mut self) -> Vec<(ConnectionHandle, TraceRow, SenderState)> {
        let packets = self.observer.as_mut().and_then(|observer| observer.packets.as_mut());
        packets.map(core::mem::take).unwrap_or_default()
    }

    /// Suspends the host, or has it go on: meanwhile it does nothing, and what arrives is lost. Its
    /// time goes on, as that of others.
    pub fn suspend(&mut self, now: Time, is_suspended: bool) {
        self.is_suspended = is_suspended;
        self.handle_timeout(now);
    }

    fn on_change(&mut self) {
        if let Some(observer) = &mut self.observer {
            observer.on_change(&mut self.endpoint);
        }
    }
}

impl Observer {
    fn on_event(&mut self, now: Time, endpoint: &mut Endpoint, handle: ConnectionHandle, event: &Event) {
        self.on_change(endpoint);
        if *event == Event::Connected
            && let Some(trace) = endpoint.trace(handle)
        {
            trace.start();
            self.connections.insert(handle);
            self.on_change(endpoint);
        }
        if let Some(qlog) = &mut self.qlog {
            qlog.on_event(now, endpoint, handle, event);
        }
    }

    /// Takes what packets have done.
    fn on_change(&mut self, endpoint: &mut Endpoint) {
        self.connections.retain(|handle| {
            let Some(trace) = endpoint.trace(*handle) else { return false };
            self.rows.clear();
            self.rows.extend(trace.take());
            let handshake = trace.take_handshake();
            if let Some(qlog) = &mut self.qlog {
                qlog.on_packets(endpoint, *handle, &handshake, &self.rows);
            }
            if let Some(packets) = &mut self.packets {
                let state = endpoint.peek(*handle).map(SenderState::of).unwrap_or_default();
                packets.extend(self.rows.iter().map(|row| (*handle, *row, state)));
            }
            true
        });
    }
}

impl Application for Host {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        if let Body::Bytes(mut bytes) = packet.body
            && !self.is_suspended
        {
            self.endpoint.handle_datagram(now, packet.from.into(), packet.ecn, &mut bytes);
            self.on_change();
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_suspended {
            return;
        }
        self.endpoint.handle_timeout(now);
        self.on_change();
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        if self.is_suspended {
            return None;
        }
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
        if self.is_suspended { None } else { self.endpoint.poll_timeout() }
    }

    /// A packet says under which epoch it was built. Those of the handshake have no mechanisms.
    fn mechanism_work(&self, costs: &[MechanismCost], direction: Direction, packet: &Packet) -> Duration {
        let Body::Bytes(datagram) = &packet.body else { return Duration::ZERO };
        let handle = match direction {
            Direction::Out => self.endpoint.last_sender(),
            Direction::In => self.endpoint.recipient(packet.from.into(), datagram),
        };
        let connection = handle.and_then(|handle| self.endpoint.peek(handle));
        let profile = connection.and_then(|connection| connection.profile_under(direction, datagram));
        let bytes = packet.path_bytes();
        profile.map_or(Duration::ZERO, |profile| MechanismCost::total(costs, &profile, direction, bytes))
    }
}
