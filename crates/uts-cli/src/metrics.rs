//! Figures of a server for Prometheus, in its text format, at `http://ADDR:PORT/metrics`.
//!
//! Nothing is counted for it: a request gathers what the server knows anyway. Only round trips are
//! looked at from time to time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Where figures are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub SocketAddr);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |port: &str| port.parse::<u16>().ok();
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let place = match text.strip_prefix(':').unwrap_or(text) {
            number if !number.contains(':') => port(number).map(loopback),
            _ => match text.strip_prefix("localhost:") {
                Some(number) => port(number).map(loopback),
                None => text.parse().ok(),
            },
        };
        place.map(Place).ok_or_else(|| {
            format!("`{text}` is not [ADDR:]PORT, as 9433 (of this host only) or 192.0.2.1:9433")
        })
    }
}

#[cfg(feature = "metrics")]
pub use told::{Figures, Metrics};

#[cfg(feature = "metrics")]
mod told {
    use super::Place;
    use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
    use std::collections::BTreeMap;
    use std::io;
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;
    use tokio::time::timeout;
    use uts::printable::words;
    use uts_ledger::Row;

    /// The longest request, in bytes.
    const REQUEST_BYTES_MAX: usize = 8 << 10;
    /// Requests at once; others wait.
    const ASKING_MAX: usize = 4;
    /// Time that a request and its answer may take.
    const PATIENCE: Duration = Duration::from_secs(10);
    /// Bounds of the round trips that are counted together, in seconds.
    const ROUND_TRIPS_S: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0];

    /// Knowledge of a server about itself.
    #[derive(Clone, Debug, Default)]
    pub struct Figures {
        /// Clients that are there, by their services.
        pub connections: BTreeMap<String, u64>,
        /// Clients that have come so far.
        pub connections_total: u64,
        /// Streams that are carried.
        pub streams: u64,
        /// Streams so far, by what became of them: `opened`, `refused`.
        pub streams_total: BTreeMap<&'static str, u64>,
        /// Bytes of content that came in, and that went out.
        pub bytes: [u64; 2],
        /// Packets so far: `sent`, `lost`, `repeated`, `repaired`.
        pub packets: [(&'static str, u64); 4],
        /// Mean share of packets that are lost, of the clients that are there.
        pub loss: f64,
        /// Steps of exchanges so far: `completed`, `refused`, `failed` …
        pub exchanges: BTreeMap<&'static str, u64>,
        /// Clients that were refused so far: for their keys, their services, want of a place.
        pub refused: BTreeMap<&'static str, u64>,
        /// Resources that are held, and that there are.
        pub ledger: Vec<Row>,
        /// Faults of the program.
        pub bugs: u64,
    }

    /// Figures that are told to whoever asks.
    pub struct Metrics {
        listener: TcpListener,
        recorder: PrometheusRecorder,
        handle: PrometheusHandle,
    }

    impl Metrics {
        /// Listens at a place.
        ///
        /// # Errors
        /// Why it cannot, in one line.
        pub async fn bind(place: Place) -> Result<Metrics, String> {
            let wrong = |why: String| format!("--metrics {}: {why}", place.0);
            let listener = TcpListener::bind(place.0).await.map_err(|error| wrong(words(&error)))?;
            let buckets = Matcher::Full("uts_round_trip_seconds".to_owned());
            let builder = PrometheusBuilder::new().set_buckets_for_metric(buckets, &ROUND_TRIPS_S);
            let recorder = builder.map_err(|error| wrong(error.to_string()))?.build_recorder();
            let handle = recorder.handle();
            metrics::with_local_recorder(&recorder, describe);
            Ok(Metrics { listener, recorder, handle })
        }

        /// Where it listens.
        ///
        /// # Errors
        /// What the operating system says.
        pub fn local_addr(&self) -> io::Result<SocketAddr> {
            self.listener.local_addr()
        }

        /// Notes round trips as they are now.
        pub fn round_trips(&self, all: impl Iterator<Item = Duration>) {
            metrics::with_local_recorder(&self.recorder, || {
                all.for_each(|time| histogram!("uts_round_trip_seconds").record(time.as_secs_f64()));
            });
            self.handle.run_upkeep();
        }

        /// The figures as text.
        pub fn render(&self, figures: &Figures) -> String {
            metrics::with_local_recorder(&self.recorder, || set(figures));
            self.handle.render()
        }

        /// Answers whoever asks, until it is given up.
        pub async fn serve(self: Arc<Self>, figures: impl Fn() -> Figures + Send + Sync + 'static) {
            let (room, figures) = (Arc::new(Semaphore::new(ASKING_MAX)), Arc::new(figures));
            loop {
                let Ok(place) = room.clone().acquire_owned().await else { return };
                let Ok((socket, _)) = self.listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (metrics, figures) = (self.clone(), figures.clone());
                tokio::spawn(async move {
                    let _place = place;
                    // Who has gone needs no answer.
                    let _ = timeout(PATIENCE, metrics.answer(socket, &*figures)).await;
                });
            }
        }

        async fn answer(
            &self,
            mut socket: TcpStream,
            figures: &(impl Fn() -> Figures + Sync),
        ) -> io::Result<()> {
            let is_local = socket.local_addr()?.ip().is_loopback();
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
                if (&mut socket).take(REQUEST_BYTES_MAX as u64).read_buf(&mut request).await? == 0 {
                    break;
                }
            }
            let (status, body) = match asked(&String::from_utf8_lossy(&request), is_local) {
                Ok(()) => ("200 OK", self.render(&figures())),
                Err(status) => (status, format!("{status}\n")),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                body.len()
            );
            let body = if request.starts_with(b"HEAD ") { "" } else { &body };
            socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
            socket.shutdown().await
        }
    }

    /// Takes a request for the figures. `is_local`: it came to an address of loopback,
    /// where pages of the Web get in by names that lead there.
    fn asked(request: &str, is_local: bool) -> Result<(), &'static str> {
        let mut lines = request.split("\r\n");
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, path, version] = words[..] else { return Err("400 Bad Request") };
        if !version.starts_with("HTTP/1.") {
            return Err("400 Bad Request");
        }
        if !["GET", "HEAD"].contains(&method) {
            return Err("405 Method Not Allowed");
        }
        let host = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        });
        let is_own = |host: &str| {
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            name == "localhost"
                || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
                || host.parse::<IpAddr>().is_ok()
        };
        if is_local && !host.is_none_or(is_own) {
            return Err("403 Forbidden");
        }
        if path.split('?').next() == Some("/metrics") { Ok(()) } else { Err("404 Not Found") }
    }

    fn describe() {
        describe_gauge!("uts_connections_open", "Clients that are there, by service");
        describe_counter!("uts_connections_total", "Clients that have come");
        describe_gauge!("uts_streams_open", "Streams and datagram flows that are carried");
        describe_counter!("uts_streams_total", "Streams and datagram flows, by what became of them");
        describe_counter!("uts_bytes_total", "Bytes of content, by direction");
        describe_counter!("uts_packets_total", "Packets, by kind");
        describe_gauge!("uts_loss_ratio", "Share of packets lost, mean of the clients that are there");
        describe_histogram!("uts_round_trip_seconds", "Smoothed round trips, each client every five seconds");
        describe_counter!("uts_exchanges_total", "Steps of exchanges of mechanisms, by outcome");
        describe_counter!("uts_refused_total", "Clients that were not let in, by cause");
        describe_gauge!("uts_held", "What is held for clients, by resource");
        describe_gauge!("uts_held_most", "What may be held for clients, by resource");
        describe_gauge!("uts_waiting", "Requests that wait for a resource");
        describe_counter!("uts_faults_total", "Faults of this program that it has seen");
    }

    fn set(figures: &Figures) {
        for (service, count) in &figures.connections {
            gauge!("uts_connections_open", "service" => service.clone()).set(*count as f64);
        }
        counter!("uts_connections_total").absolute(figures.connections_total);
        gauge!("uts_streams_open").set(figures.streams as f64);
        for (outcome, count) in &figures.streams_total {
            counter!("uts_streams_total", "outcome" => *outcome).absolute(*count);
        }
        for (direction, bytes) in ["in", "out"].into_iter().zip(figures.bytes) {
            counter!("uts_bytes_total", "direction" => direction).absolute(bytes);
        }
        for (kind, count) in figures.packets {
            counter!("uts_packets_total", "kind" => kind).absolute(count);
        }
        gauge!("uts_loss_ratio").set(figures.loss);
        for (outcome, count) in &figures.exchanges {
            counter!("uts_exchanges_total", "outcome" => *outcome).absolute(*count);
        }
        for (cause, count) in &figures.refused {
            counter!("uts_refused_total", "cause" => *cause).absolute(*count);
        }
        for row in &figures.ledger {
            let name = row.resource.name();
            gauge!("uts_held", "resource" => name).set(row.held as f64);
            gauge!("uts_held_most", "resource" => name).set(row.total as f64);
            gauge!("uts_waiting", "resource" => name).set(row.waiting as f64);
        }
        counter!("uts_faults_total").absolute(figures.bugs);
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn only_who_asks_for_figures_gets_them() {
            let ask =
                |line: &str, host: &str| asked(&format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"), true);
            for host in ["localhost:9", "127.0.0.1:9", "[::1]:9", "::1", "localhost"] {
                assert_eq!(ask("GET /metrics", host), Ok(()), "{host}");
            }
            assert_eq!(ask("HEAD /metrics?x=1", "localhost"), Ok(()));
            assert_eq!(ask("GET /", "localhost"), Err("404 Not Found"));
            assert_eq!(ask("POST /metrics", "localhost"), Err("405 Method Not Allowed"));
            assert_eq!(ask("GET /metrics", "evil.example:9"), Err("403 Forbidden"));
            assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n", false), Ok(()));
            for nonsense in ["", "GET", "\r\n\r\n", "GET /metrics FTP/1\r\n\r\n", "a b c d"] {
                assert!(asked(nonsense, false).is_err(), "{nonsense}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_this_host_unless_it_says_otherwise() {
        let read = |text: &str| text.parse::<Place>().map(|place| place.0.to_string());
        for (text, place) in [
            ("9433", "127.0.0.1:9433"),
            (":9433", "127.0.0.1:9433"),
            ("0", "127.0.0.1:0"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::1]:1", "[::1]:1"),
            ("192.0.2.1:1", "192.0.2.1:1"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(place), "{text}");
        }
        for text in ["", "host:1", "70000", "1.2.3:4", "127.0.0.1", "::1:x"] {
            assert!(read(text).is_err_and(|why| why.contains("[ADDR:]PORT")), "{text}");
        }
    }
}
