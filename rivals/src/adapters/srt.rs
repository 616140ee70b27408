//! SRT: live mode for messages, file mode for streams. The workload decides, unless a setting does.
//!
//! A connection of SRT is one stream. A session therefore opens one for each, from one UDP port.
//! The stream ID that SRT carries in its handshake says to which session and which mode it belongs.
//! A stream of SRT has no end of its own in one direction. What is written goes in frames of a
//! length (4 bytes) and content, and a frame without content is the end.

mod session;
mod stream;

use super::{Rival, Setting};
use crate::native::srt::{Mode, Options, Socket, SrtError, version};
use serde::Deserialize;
use session::{Side, SrtSession};
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use uts_end::{Context, TransportSpec};
use uts_traffic::transport::{self, Capabilities, Listener, Local, Session, Transport, TransportError};
use uts_traffic::workload::Workload;

/// The largest message of live mode, unless SRT is set otherwise (`SRT_LIVE_DEF_PLSIZE`).
const MESSAGE_BYTES_MAX: usize = 1316;

/// The latency of live mode, unless it is set (`SRT_LIVE_DEF_LATENCY_MS`).
const LATENCY: Duration = Duration::from_millis(120);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Both ends have it, as they have all settings. It authenticates nobody, and costs what a real one
/// does.
const PASSPHRASE: &str = "the passphrase of a measured run";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    mode: Option<ModeName>,
    #[serde(with = "uts_units::text::duration_option")]
    latency: Option<Duration>,
    aes: Aes,
    /// Buffers at both ends and how much may be in flight (SRT: some 12 MB).
    #[serde(with = "uts_units::text::bytes_option")]
    window: Option<u64>,
    /// The greatest rate of live mode (SRT: 1 Gbit/s).
    #[serde(with = "uts_units::text::rate_option")]
    rate_max: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeName {
    Live,
    File,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Aes {
    #[default]
    #[serde(rename = "off")]
    Off,
    #[serde(rename = "128")]
    Aes128,
    #[serde(rename = "192")]
    Aes192,
    #[serde(rename = "256")]
    Aes256,
}

impl Aes {
    fn key_bytes(self) -> Option<i32> {
        match self {
            Aes::Off => None,
            Aes::Aes128 => Some(16),
            Aes::Aes192 => Some(24),
            Aes::Aes256 => Some(32),
        }
    }
}

/// What it is.
pub fn rival() -> Rival {
    Rival {
        version: Some(version()),
        settings: &[
            Setting { key: "mode", values: "live for messages and video, file for all else; or live, file" },
            Setting { key: "latency", values: "120ms, or another span of time" },
            Setting { key: "aes", values: "off, 128, 192, 256" },
            Setting { key: "window", values: "SRT's own (some 12MB), or a size" },
            Setting { key: "rate_max", values: "SRT's own (1Gbit/s), or a rate for live mode" },
        ],
        ..super::SRT
    }
}

/// The transport, from a spec.
///
/// # Errors
/// What is wrong with the spec.
pub fn provide(spec: &TransportSpec, context: &Context<'_>) -> Result<Rc<dyn Transport>, String> {
    let settings: Settings = spec.read()?;
    let mode = match (settings.mode, context.workload) {
        (Some(ModeName::Live), _) => Mode::Live,
        (Some(ModeName::File), _) => Mode::File,
        (None, Workload::Messages { .. } | Workload::Video { .. }) => Mode::Live,
        (None, _) => Mode::File,
    };
    let too_much = |key: &str| format!("srt: {key}: is more than SRT takes");
    let latency_ms = settings.latency.map(|latency| i32::try_from(latency.as_millis()));
    let window_bytes = settings.window.map(i32::try_from);
    let rate_max = settings.rate_max.map(|bps| i64::try_from(bps / 8));
    let options = Options {
        latency_ms: latency_ms.transpose().map_err(|_| too_much("latency"))?,
        passphrase: settings.aes.key_bytes().map(|bytes| (PASSPHRASE.to_owned(), bytes)),
        window_bytes: window_bytes.transpose().map_err(|_| too_much("window"))?,
        rate_max: rate_max.transpose().map_err(|_| too_much("rate_max"))?,
    };
    let how = How { mode, options, latency: settings.latency.unwrap_or(LATENCY) };
    Ok(Rc::new(Srt(Rc::new(how))))
}

struct How {
    mode: Mode,
    options: Options,
    latency: Duration,
}

struct Srt(Rc<How>);

impl Transport for Srt {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            streams: self.0.mode == Mode::File,
            messages: self.0.mode == Mode::Live,
            message_bytes_max: if self.0.mode == Mode::Live { MESSAGE_BYTES_MAX } else { 0 },
            protected: self.0.options.passphrase.is_some(),
        }
    }

    fn connect(&self, to: SocketAddr) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            // From a seed of the system's, anew for each.
            let id = format!("{:016x}", RandomState::new().build_hasher().finish());
            let first = connect(&self.0, to, 0, &id).await?;
            Ok(SrtSession::start(
                self.0.clone(),
                id,
                Side::Client { to, unused: RefCell::new(Some(first.clone())) },
                first,
            ))
        })
    }

    fn listen(&self, at: SocketAddr) -> Local<'_, transport::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let socket = Socket::listen(at, &self.0.options, mode_of, BACKLOG).map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            let door = Door {
                socket,
                waiting: RefCell::default(),
                sessions: RefCell::default(),
                moved: Notify::new(),
            };
            Ok(Box::new(SrtListener { door: Rc::new(door), address, how: self.0.clone() })
                as Box<dyn Listener>)
        })
    }
}

/// `uts-rival/live/ID` or `uts-rival/file/ID`.
fn stream_id(mode: Mode, id: &str) -> String {
    let mode = if mode == Mode::Live { "live" } else { "file" };
    format!("uts-rival/{mode}/{id}")
}

fn mode_of(stream_id: &str) -> Option<Mode> {
    let (mode, _) = stream_id.strip_prefix("uts-rival/")?.split_once('/')?;
    match mode {
        "live" => Some(Mode::Live),
        "file" => Some(Mode::File),
        _ => None,
    }
}

async fn connect(how: &How, to: SocketAddr, from_port: u16, id: &str) -> transport::Result<Arc<Socket>> {
    let id = stream_id(how.mode, id);
    // All connections of a session share a UDP socket of SRT's. For that they must be bound to the
    // same address.
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = SocketAddr::new(any, from_port);
    let socket = Socket::connect(to, from, how.mode, &id, &how.options).map_err(failed)?;
    let mut ready = socket.ready();
    let mut broken = false;
    loop {
        match socket.is_connected() {
            Some(true) => return Ok(Arc::new(socket)),
            Some(false) if broken => {
                let why = format!("SRT, connecting to {to}: {}", socket.refusal());
                return Err(TransportError::Failed(why));
            }
            // Between connecting and connected SRT shows a socket as broken for a moment.
            Some(false) => {
                broken = true;
                sleep(LOOK_AGAIN).await;
            }
            None => look_again(&mut ready).await,
        }
    }
}

struct SrtListener {
    door: Rc<Door>,
    address: SocketAddr,
    how: Rc<How>,
}

/// Where connections arrive, and to whose session they belong.
struct Door {
    socket: Socket,
    /// The first connections of new sessions.
    waiting: RefCell<VecDeque<(String, Arc<Socket>)>>,
    /// Further connections of sessions that are there.
    sessions: RefCell<BTreeMap<String, VecDeque<Arc<Socket>>>>,
    /// Something was put where someone else may be waiting for it.
    moved: Notify,
}

impl Door {
    /// Takes in what has arrived.
    fn take(&self) {
        while let Ok(socket) = self.socket.accept() {
            // One that is gone already, or is of no session, is closed again.
            let Ok(stream_id) = socket.stream_id() else { continue };
            let Some(id) = stream_id.rsplit('/').next() else { continue };
            match self.sessions.borrow_mut().get_mut(id) {
                Some(session) => session.push_back(Arc::new(socket)),
                None => self.waiting.borrow_mut().push_back((id.to_owned(), Arc::new(socket))),
            }
            self.moved.notify_waiters();
        }
    }

    /// Waits until `found` finds something in what has arrived.
    async fn find<T>(&self, mut found: impl FnMut(&Door) -> Option<T>) -> T {
        let mut ready = self.socket.ready();
        loop {
            let moved = self.moved.notified();
            self.take();
            if let Some(found) = found(self) {
                return found;
            }
            tokio::select! {
                () = look_again(&mut ready) => {}
                () = moved => {}
            }
        }
    }
}

impl Listener for SrtListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Local<'_, transport::Result<Rc<dyn Session>>> {
        Box::pin(async move {
            let (id, first) = self.door.find(|door| door.waiting.borrow_mut().pop_front()).await;
            // Others of the same session may have come before it was there.
            let mut mine = VecDeque::from([first.clone()]);
            self.door.waiting.borrow_mut().retain(|(other, socket)| {
                if *other == id {
                    mine.push_back(socket.clone());
                }
                *other != id
            });
            self.door.sessions.borrow_mut().insert(id.clone(), mine);
            Ok(SrtSession::start(self.how.clone(), id, Side::Server(self.door.clone()), first))
        })
    }
}

/// Tries until it is done, or cannot be done.
async fn patiently<T>(
    socket: &Socket,
    mut what: impl FnMut() -> crate::native::srt::Result<T>,
) -> transport::Result<T> {
    let mut ready = socket.ready();
    loop {
        match what() {
            Err(error) if error.would_block() => look_again(&mut ready).await,
            result => return result.map_err(failed),
        }
    }
}

/// Waits until SRT says that something has changed. What it does not say is seen a little later.
async fn look_again(ready: &mut watch::Receiver<()>) {
    let _ = timeout(LOOK_AGAIN, ready.changed()).await;
}

fn failed(error: SrtError) -> TransportError {
    if error.is_gone() { TransportError::Closed } else { TransportError::Failed(error.to_string()) }
}

/// SRT's edges are not promised to be complete. If a connection breaks, only a waiting thread hears
/// of it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_id_says_the_mode() {
        for mode in [Mode::Live, Mode::File] {
            assert_eq!(mode_of(&stream_id(mode, "0123")), Some(mode));
        }
        for other in ["", "uts-rival/", "uts-rival/live", "uts-rival/both/1", "#!::r=x"] {
            assert_eq!(mode_of(other), None, "{other}");
        }
    }
}
