//! Messages of the ends to each other about a measurement, and the bounds of a measurement.

use crate::end::Report;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use uts::{Flow, RecvFlow, SendFlow};
use uts_traffic::workload::Workload;
use uts_units::show;

/// The version of what is said here.
pub const VERSION: u8 = 1;

/// The longest message of control, in bytes.
const MESSAGE_BYTES_MAX: u32 = 256 << 10;

/// The longest measurement. After this long a server ends it in any case.
pub const LASTS_MAX: Duration = Duration::from_secs(3600);

/// Most flows at once.
pub const FLOWS_MAX: u32 = 128;

/// Most messages or requests: the ends remember something of each.
pub const COUNT_MAX: u64 = 1_000_000;

/// The largest message of a workload, in bytes: the memory that one takes before it is whole.
const MESSAGE_MAX: u64 = 1 << 20;

/// From where to where a workload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The client sends, or asks.
    Forward,
    /// The server sends, or asks.
    Reverse,
    /// Both do, at once.
    Both,
}

impl Way {
    /// True if the client drives a workload.
    pub fn is_forward(self) -> bool {
        self != Way::Reverse
    }

    /// True if the server drives a workload.
    pub fn is_reverse(self) -> bool {
        self != Way::Forward
    }
}

/// Measurement that a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u8,
    /// Workload of each flow.
    pub workload: Workload,
    /// Number of flows that carry it at once, in each direction.
    pub flows: u32,
    /// From where to where.
    pub way: Way,
    /// Where the content comes from.
    pub seed: u64,
}

impl Request {
    /// Checks that it stays within the bounds of a server.
    ///
    /// # Errors
    /// The reason why it does not, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("version {} is asked; version {VERSION} is spoken here", self.version));
        }
        self.workload.validate()?;
        let most = |what: &str, value: u64, max: u64| {
            if value > max { Err(format!("{what}: {value} is more than {max}")) } else { Ok(()) }
        };
        match &self.workload {
            Workload::Bulk { .. } => most("flows", self.flows.into(), FLOWS_MAX.into())?,
            Workload::Requests { count, concurrency, .. } => {
                most("requests", u64::from(*count), COUNT_MAX)?;
                most("flows", u64::from(*concurrency), FLOWS_MAX.into())?;
            }
            Workload::Messages { every, bytes, duration, .. } => {
                let count = duration.as_nanos().div_ceil(every.as_nanos().max(1));
                most("messages", u64::try_from(count).unwrap_or(u64::MAX), COUNT_MAX)?;
                most("bytes of a message", *bytes, MESSAGE_MAX)?;
            }
            other => return Err(format!("{} is not measured here", other.kind())),
        }
        if self.flows == 0 || (self.flows > 1 && !matches!(self.workload, Workload::Bulk { .. })) {
            return Err(format!("{} flows cannot carry {}", self.flows, self.workload.kind()));
        }
        let lasts = match &self.workload {
            Workload::Bulk { duration, .. } => *duration,
            other => other.lasts(),
        };
        match lasts.filter(|lasts| *lasts > LASTS_MAX) {
            Some(lasts) => Err(format!("{} is longer than {}", show::time(lasts), show::time(LASTS_MAX))),
            None => Ok(()),
        }
    }
}

/// Message of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToServer {
    /// Measurement that it asks for.
    Request(Request),
    /// It asks for the server's time.
    Time,
    /// It begins.
    Start,
    /// Report of the client. Nothing follows.
    Done(Report),
}

/// Message of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToClient {
    /// It does what was asked.
    Ready,
    /// It does not, and why.
    Refused(String),
    /// Its time, in nanoseconds since any instant.
    Time(u64),
    /// Report of the server. Nothing follows.
    Done(Report),
}

/// The flow for control.
#[derive(Debug)]
pub(crate) struct Control {
    send: SendFlow,
    recv: RecvFlow,
    patience: Duration,
}

impl Control {
    /// Over the first flow of a connection. Each message of the peer may take so long.
    pub fn new(flow: Flow, patience: Duration) -> Self {
        let (send, recv) = flow.split();
        Control { send, recv, patience }
    }

    /// Says something.
    ///
    /// # Errors
    /// Those of the flow, and [`io::ErrorKind::InvalidData`] if it is too long.
    pub async fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(what)?;
        let length = u32::try_from(body.len()).ok().filter(|length| *length <= MESSAGE_BYTES_MAX);
        let length = length.ok_or_else(|| too_long(body.len() as u64))?;
        let mut message = length.to_be_bytes().to_vec();
        message.extend_from_slice(&body);
        self.send.write_all(&message).await?;
        self.send.flush().await
    }

    /// Next message of the peer. Once begun, it must be read to its end.
    ///
    /// # Errors
    /// Those of [`hear`], and [`io::ErrorKind::TimedOut`].
    pub async fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let late = || {
            let text = format!("nothing is heard of the other end for {}", show::time(self.patience));
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        timeout(self.patience, hear(&mut self.recv)).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The next message of a peer. Memory is taken as bytes come, not as they are said to.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if it is longer than 256 KiB, or not what an
/// end says.
pub async fn hear<T: DeserializeOwned>(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let length = recv.read_u32().await?;
    if length > MESSAGE_BYTES_MAX {
        return Err(too_long(length.into()));
    }
    let mut body = Vec::new();
    if recv.take(length.into()).read_to_end(&mut body).await? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&body)?)
}

fn too_long(bytes: u64) -> io::Error {
    let why = format!("a message of {bytes} bytes; at most {MESSAGE_BYTES_MAX} are taken");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(workload: Workload) -> Request {
        Request { version: VERSION, workload, flows: 1, way: Way::Forward, seed: 1 }
    }

    #[test]
    fn what_would_cost_a_server_too_much_is_refused() {
        let (second, byte) = (Duration::from_secs(1), Some(1));
        let bulk = |bytes, duration| request(Workload::Bulk { bytes, duration });
        let messages = |every_us, bytes| {
            let every = Duration::from_micros(every_us);
            request(Workload::Messages { every, bytes, duration: 10 * second, deadline: second })
        };
        let requests = |count, concurrency| {
            request(Workload::Requests { count, request_bytes: 1, answer_bytes: 1, concurrency })
        };
        for sound in [bulk(byte, None), bulk(None, Some(LASTS_MAX)), messages(10, 1000), requests(10, 128)] {
            assert_eq!(sound.check(), Ok(()), "{sound:?}");
        }
        let cases = [
            (bulk(None, Some(LASTS_MAX + second)), "3601s is longer than 3600s"),
            (bulk(byte, Some(LASTS_MAX + second)), "3601s is longer than 3600s"),
            (bulk(None, None), "bytes: say how many"),
            (Request { version: 9, ..bulk(byte, None) }, "version 9 is asked"),
            (Request { flows: 129, ..bulk(byte, None) }, "flows: 129 is more than 128"),
            (Request { flows: 0, ..bulk(byte, None) }, "0 flows cannot carry bulk"),
            (Request { flows: 2, ..requests(2, 2) }, "2 flows cannot carry requests"),
            (requests(1_000_001, 1), "requests: 1000001 is more than 1000000"),
            (requests(10, 129), "flows: 129 is more than 128"),
            (messages(1, 1000), "messages: 10000000 is more than"),
            (messages(1000, 2 << 20), "bytes of a message: 2097152 is more than"),
            (request(Workload::Keystrokes { count: 1, every: second }), "keystrokes is not measured here"),
        ];
        for (wrong, says) in cases {
            let why = wrong.check().expect_err(says);
            assert!(why.contains(says), "{wrong:?}: {why}");
        }
    }

    #[test]
    fn what_is_said_is_read_as_it_was() {
        let said = ToServer::Request(request(Workload::Bulk { bytes: Some(7), duration: None }));
        let text = serde_json::to_string(&said).expect("written");
        assert_eq!(serde_json::from_str::<ToServer>(&text).expect(&text), said);
        assert!(serde_json::from_str::<ToServer>(r#"{"request":{"version":1}}"#).is_err());
        assert!(serde_json::from_str::<ToClient>(r#""start""#).is_err());
    }
}
