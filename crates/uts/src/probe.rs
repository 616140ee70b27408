//! Log of the points that packets pass at an endpoint: where the time between two applications
//! goes.

use crate::clock::Clock;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use uts_engine::{Passage, Point, ProbeSink, Probes};
use uts_functions::Time;

/// Log of passages, as A. Richards, "The Universal Transport System" (1995), section 3.2.3 has it:
/// an array in memory that is read at the end. It takes no lock. Once it is full it keeps no more.
///
/// ```
/// use uts::{ConnectOptions, NewHost, Point, ProbeLog, Trust};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = ProbeLog::new(100_000);
/// let mut options = ConnectOptions::new(Trust::known_hosts(NewHost::Refuse)?);
/// options.probes = log.probes();
/// // The application has two points of its own, around what it does with the connection.
/// log.probes().pass(Point::Written, 1400);
/// assert_eq!(log.take()[0].point.number(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProbeLog {
    clock: Clock,
    rows: Box<[Row]>,
    /// Rows that were asked for, more than there are if some were dropped.
    next: AtomicUsize,
}

/// A passage. It is written if its point is not 0.
#[derive(Debug, Default)]
struct Row {
    at_ns: AtomicU64,
    /// Number of the point in the lowest byte, bytes above.
    what: AtomicU64,
}

impl ProbeLog {
    /// A log of so many passages, whose instants count from now.
    pub fn new(passages_max: usize) -> Arc<Self> {
        Self::by(Clock::start(), passages_max)
    }

    /// A log of another endpoint, whose instants count from the same moment.
    pub fn beside(&self) -> Arc<Self> {
        Self::by(self.clock, self.rows.len())
    }

    fn by(clock: Clock, passages_max: usize) -> Arc<Self> {
        let rows = (0..passages_max).map(|_| Row::default()).collect();
        Arc::new(ProbeLog { clock, rows, next: AtomicUsize::new(0) })
    }

    /// Probes that write to this log.
    pub fn probes(self: &Arc<Self>) -> Probes {
        Probes::new(self.clone())
    }

    /// Number of passages that found no room since the last call of [`ProbeLog::take`].
    pub fn dropped(&self) -> usize {
        self.next.load(Ordering::Acquire).saturating_sub(self.rows.len())
    }

    /// Takes what was logged, in the order of the log. A passage that is being written meanwhile
    /// may be lost.
    pub fn take(&self) -> Vec<Passage> {
        let count = self.next.load(Ordering::Acquire).min(self.rows.len());
        let taken = self.rows[..count].iter().filter_map(|row| {
            let what = row.what.swap(0, Ordering::Acquire);
            let point = Point::of_number((what & 0xff) as u8)?;
            let at = Time::from_nanos(row.at_ns.load(Ordering::Relaxed));
            Some(Passage { at, point, bytes: usize::try_from(what >> 8).unwrap_or(usize::MAX) })
        });
        let taken = taken.collect();
        self.next.store(0, Ordering::Release);
        taken
    }
}

impl ProbeSink for ProbeLog {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn passed(&self, passage: Passage) {
        let Some(row) = self.rows.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
        row.at_ns.store(passage.at.as_nanos(), Ordering::Relaxed);
        let what = (passage.bytes as u64) << 8 | u64::from(passage.point.number());
        row.what.store(what, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::testing::{FAIR, FAIR_DELAY, begin};
    use crate::{
        ConnectOptions, Connection, FlowOptions, Identity, Listener, MessageOptions, Requirements,
        ServerOptions, connect,
    };
    use bytes::Bytes;
    use core::time::Duration;
    use std::net::SocketAddr;
    use tokio::time::sleep;

    /// Requirements under which one message is one packet, and each is acknowledged at once.
    fn requirements() -> Requirements {
        let mut requirements = Requirements::messages();
        for (name, value) in [("uts.profile.acknowledgement", "per-packet"), ("uts.adapt", "off")] {
            requirements.set(name, value).expect("it exists");
        }
        requirements
    }

    /// A client and a server with a log each; the server's reader passes the last point.
    async fn ends(at: &str, client: &Arc<ProbeLog>, server: &Arc<ProbeLog>) -> (Connection, Listener) {
        let mut options =
            ServerOptions::new(Identity::generate().expect("a key")).requirements(requirements());
        options.probes = server.probes();
        options.connection.packet_bytes_initial = 1472;
        let at: SocketAddr = at.parse().expect("an address");
        let listener = Listener::bind(at, options).expect("bound");
        let mut options = ConnectOptions::pinned(listener.fingerprint()).requirements(requirements());
        options.connection.packet_bytes_initial = 1472;
        options.probes = client.probes();
        let connection = connect(&listener.local_addr().to_string(), options).await.expect("connected");
        let (accepted, probes) = (listener.accept().await.expect("accepted"), server.probes());
        tokio::spawn(async move {
            let (_, mut recv) = accepted.accept_flow().await.expect("a flow").split();
            while let Ok(Some(message)) = recv.recv_message().await {
                probes.pass(Point::Delivered, message.len());
            }
        });
        (connection, listener)
    }

    /// Passages of these points in a log, which has to have no instant before the one before.
    fn passed(log: &[Passage], points: core::ops::RangeInclusive<u8>) -> Vec<Passage> {
        let of: Vec<Passage> =
            log.iter().copied().filter(|row| points.contains(&row.point.number())).collect();
        assert!(of.is_sorted_by_key(|row| row.at), "{of:?}");
        of
    }

    fn numbers(rows: &[Passage]) -> Vec<u8> {
        rows.iter().map(|row| row.point.number()).collect()
    }

    /// Every packet of data passes the twenty points in their order, every acknowledgement those of
    /// a packet without data, at the instants that the path makes.
    #[tokio::test(start_paused = true)]
    async fn packets_pass_the_points_in_their_order() {
        let _network = begin(FAIR, 1);
        let client = ProbeLog::new(10_000);
        let server = client.beside();
        let (connection, _listener) = ends("10.0.0.2:4433", &client, &server).await;
        let (mut send, _recv) = connection.open_flow(FlowOptions::default()).await.expect("opened").split();
        let probes = client.probes();
        let mut alone = [0; 2];
        for round in 0..60 {
            // What fits in a packet before the path has proved a larger one.
            let bytes = if round % 4 < 2 { 1 } else { 1000 };
            // What exchanges and timers send is of no round.
            sleep(Duration::from_millis(500)).await;
            let (_, _) = (client.take(), server.take());
            probes.pass(Point::Written, bytes);
            let message = Bytes::from(vec![7; bytes]);
            send.send_message(message, MessageOptions::default()).await.expect("sent");
            sleep(Duration::from_millis(500)).await;
            let (at_client, at_server) = (client.take(), server.take());
            // Packets, whatever they carry, pass in their order, one behind the other.
            for log in [&at_client, &at_server] {
                for (points, first) in [(5..=10, 5), (11..=17, 11)] {
                    for packet in numbers(&passed(log, points.clone())).chunk_by(|a, b| a < b) {
                        assert!(packet.iter().copied().eq(points.clone()), "{first}: {packet:?}");
                    }
                }
            }
            let (out, inward) = (passed(&at_client, 1..=10), passed(&at_server, 11..=20));
            assert_eq!(numbers(&passed(&at_client, 1..=4)), [1, 2, 3, 4], "round {round}");
            assert_eq!(numbers(&passed(&at_server, 18..=20)), [18, 19, 20], "round {round}");
            if at_client.len() + at_server.len() != 20 + 13 {
                continue;
            }
            // In every other round ends tell each other something besides.
            alone[usize::from(bytes > 1)] += 1;
            assert_eq!(numbers(&out), (1..=10).collect::<Vec<_>>(), "round {round}");
            assert_eq!(numbers(&inward), (11..=20).collect::<Vec<_>>(), "round {round}");
            let (ack_out, ack_in) = (passed(&at_server, 1..=10), passed(&at_client, 11..=20));
            assert_eq!(numbers(&ack_out), (5..=10).collect::<Vec<_>>(), "round {round}");
            assert_eq!(numbers(&ack_in), (11..=17).collect::<Vec<_>>(), "round {round}");
            // 10 ms of the path are between the points 10 and 11, and nowhere else.
            assert_eq!(out[9].at, out[0].at);
            assert_eq!(inward[0].at.since(out[9].at), FAIR_DELAY);
            assert_eq!(inward[9].at, inward[0].at);
            assert_eq!((out[0].bytes, inward[9].bytes), (bytes, bytes));
            // What leaves is what arrives: header, tag and more around the data.
            assert_eq!(out[9].bytes, inward[0].bytes);
            assert!(out[9].bytes > bytes && out[9].bytes < bytes + 72, "{out:?}");
        }
        assert!(alone.iter().all(|packets| *packets >= 10), "{alone:?} packets went alone");
    }

    /// Probes leave the runs of packets as they are, each of which passes a point at once. A
    /// simulated network makes none.
    #[tokio::test]
    async fn packets_of_a_run_pass_together() {
        let client = ProbeLog::new(1 << 20);
        let server = client.beside();
        let (connection, _listener) = ends("127.0.0.1:0", &client, &server).await;
        let (mut send, _recv) = connection.open_flow(FlowOptions::default()).await.expect("opened").split();
        for _ in 0..2000 {
            let message = Bytes::from(vec![7; 1400]);
            send.send_message(message, MessageOptions::default()).await.expect("sent");
        }
        send.finished().await.expect("read");
        let (at_client, at_server) = (client.take(), server.take());
        assert_eq!((client.dropped(), server.dropped()), (0, 0));
        let bytes = |log: &[Passage], point| -> (usize, usize) {
            let of = log.iter().filter(|row| row.point == point);
            of.fold((0, 0), |(sum, most), row| (sum + row.bytes, most.max(row.bytes)))
        };
        let makes_runs = connection.shared().segments_max > 1;
        assert!(!makes_runs || bytes(&at_client, Point::Filled).1 > 2 * 1472, "no run was made");
        for point in [Point::Begun, Point::Filled, Point::Sealed, Point::Fetched, Point::Sending] {
            assert!(bytes(&at_client, point).0 > 2000 * 1400, "{point:?}");
        }
        for point in [Point::Received, Point::Handed, Point::Found, Point::Opened, Point::Placed] {
            assert!(bytes(&at_server, point).0 > 2000 * 1400, "{point:?}");
        }
    }

    #[test]
    fn a_full_log_keeps_no_more() {
        let log = ProbeLog::new(2);
        for bytes in 1..=3 {
            log.probes().pass(Point::Sent, bytes);
        }
        assert_eq!(log.dropped(), 1);
        assert_eq!(log.take().iter().map(|row| row.bytes).collect::<Vec<_>>(), [1, 2]);
        assert!(log.take().is_empty());
    }
}
