//! A side: two ends that carry something over a path, started again when they end.

use crate::bed::{Bed, Process};
use crate::end::Kind;
use crate::hub::Hub;
use crate::word::{Asks, Word};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use uts_end::Role;

/// The longest line that an end prints, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// A server listens within this time.
const READY_MAX: Duration = Duration::from_secs(20);
/// Time within which a stop is noticed.
const NOTICE: Duration = Duration::from_millis(50);
/// Time before ends that have ended are started again.
const REST: Duration = Duration::from_secs(1);

/// A side of the comparison.
pub(crate) struct Side {
    /// Its number on the page.
    pub number: usize,
    pub kind: Kind,
    pub bed: Arc<Bed>,
    /// The program that has ends as a command, and that command.
    pub program: PathBuf,
    pub command: Vec<String>,
    pub hub: Arc<Hub>,
    pub stop: Arc<AtomicBool>,
}

impl Side {
    /// Keeps the ends going until it is stopped.
    pub fn run(&self) {
        while !self.is_stopped() {
            let Err(why) = self.once() else { return };
            if !self.is_stopped() {
                self.hub.broken(self.number, &format!("{why:#}"));
            }
            let began = Instant::now();
            while began.elapsed() < REST && !self.is_stopped() {
                thread::sleep(NOTICE);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Both ends, until one has ended; `Ok` if it is stopped.
    fn once(&self) -> Result<()> {
        let (sender, said) = channel();
        let server = Place::Server(self.bed.server_address());
        let _server = self.start(&server, &sender)?;
        let (address, identity) = match self.await_ready(&said)? {
            Some(ready) => ready,
            None => return Ok(()),
        };
        let mut client = self.start(&Place::Client(self.bed.way_to(address)?, identity), &sender)?;
        drop(sender);
        let mut asked = Asks::default();
        while !self.is_stopped() {
            let asks = self.hub.asks();
            if self.kind == Kind::Uts && asks != asked {
                let input = client.input.as_mut().context("an end without input")?;
                writeln!(input, "{}", serde_json::to_string(&asks)?).context("the client does not listen")?;
                asked = asks;
            }
            match said.recv_timeout(NOTICE) {
                Ok(Said::Word(word)) => self.hub.hear(self.number, word),
                Ok(Said::Ended(why)) => bail!(why),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("both ends have ended"),
            }
        }
        Ok(())
    }

    /// `None` if it is stopped.
    fn await_ready(&self, said: &Receiver<Said>) -> Result<Option<(SocketAddr, Option<String>)>> {
        let began = Instant::now();
        while began.elapsed() < READY_MAX {
            if self.is_stopped() {
                return Ok(None);
            }
            match said.recv_timeout(NOTICE) {
                Ok(Said::Word(Word::Ready(address, identity))) => return Ok(Some((address, identity))),
                Ok(Said::Word(_)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Said::Ended(why)) => bail!(why),
                Err(RecvTimeoutError::Disconnected) => bail!("the server has ended"),
            }
        }
        bail!("the server did not listen within {} s", READY_MAX.as_secs())
    }

    fn start(&self, place: &Place, said: &Sender<Said>) -> Result<Process> {
        let mut arguments = self.command.clone();
        let role = place.role();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--role", role.name().to_owned());
        option("--kind", self.kind.name().to_owned());
        match place {
            Place::Server(at) => option("--listen", at.to_string()),
            Place::Client(to, identity) => {
                option("--to", to.to_string());
                if let Some(identity) = identity {
                    option("--peer", identity.clone());
                }
            }
        }
        let mut process = self.bed.spawn(role, &self.program, arguments)?;
        let (out, complaints) = process.outputs.take().context("an end without outputs")?;
        let (said, name) = (said.clone(), role.name());
        thread::Builder::new().name(format!("{name} {}", self.number)).spawn(move || {
            let why = listen(out, &said).err().map(|error| error.to_string());
            let mut words = String::new();
            // Its own words say more than that it has ended.
            let _ = complaints.take(LINE_BYTES_MAX).read_to_string(&mut words);
            let last = words.trim().lines().last().map(str::to_owned).or(why);
            let last = last.unwrap_or_else(|| "has ended".to_owned());
            let _ = said.send(Said::Ended(format!("the {name}: {}", last.trim_start_matches("uts-lab: "))));
        })?;
        Ok(process)
    }
}

enum Place {
    Server(SocketAddr),
    Client(SocketAddr, Option<String>),
}

impl Place {
    fn role(&self) -> Role {
        match self {
            Place::Server(_) => Role::Server,
            Place::Client(..) => Role::Client,
        }
    }
}

enum Said {
    Word(Word),
    Ended(String),
}

/// Hands on what an end says, until it says nothing any more, or nobody listens.
fn listen(out: Box<dyn Read + Send>, said: &Sender<Said>) -> Result<()> {
    let mut reader = BufReader::new(out);
    loop {
        let mut line = String::new();
        if (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let word = serde_json::from_str(&line).with_context(|| format!("it printed {line:?}"))?;
        if said.send(Said::Word(word)).is_err() {
            return Ok(());
        }
    }
}
