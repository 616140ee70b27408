//! The client: sends the file and the voice, types, and says what its transport does.

use super::{Carried, EndArguments, FILE, KEYS, Kind, config, required, say, tcp};
use crate::word::{
    Asks, KEY_BYTES, KEY_EVERY, Step, TICK, Tile, Traffic, Typed, VOICE_BYTES, VOICE_DEADLINE, VOICE_EVERY,
    Word,
};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uts::{ConnectOptions, ConnectionEvent, Direction, ExchangeEvent, FlowId, FlowOptions, Profile};
use uts_end::Role;
use uts_end::clock::{MonotonicClock, now_ns};
use uts_end::output::read_input;
use uts_end::transport::universal::{Opened, UniversalSession};
use uts_traffic::clock::Clock;
use uts_traffic::transport::{Session, Transport};

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 64;
/// Someone who sees no echo of so many keystrokes types no more.
const AWAITED_MAX: usize = 64;

pub(super) async fn run(arguments: &EndArguments) -> Result<()> {
    let to = arguments.to.context("--to is missing")?;
    let (mut carried, watched) = match arguments.kind {
        Kind::Tcp => {
            let session = tcp()?.connect(to).await?;
            let (file, keys) = (session.open().await?, session.open().await?);
            (Carried { session, file, keys }, None)
        }
        kind => {
            let peer = arguments.peer.as_deref().context("--peer is missing")?.parse()?;
            let (carried, watched) = connect(kind, &to.to_string(), peer).await?;
            (carried, Some(watched))
        }
    };
    let clock = MonotonicClock::new().context("no timer")?;
    carried.file.send.write(&[FILE]).await?;
    carried.keys.send.write(&[KEYS]).await?;
    let typing = RefCell::new(Typing::default());
    let (mut key_send, mut key_receive) = (carried.keys.send, carried.keys.receive);
    tokio::select! {
        ended = async {
            let content = vec![0x55; 64 << 10];
            loop {
                carried.file.send.write(&content).await?;
            }
        } => ended,
        ended = speak(&*carried.session, &clock) => ended,
        ended = async {
            loop {
                tokio::time::sleep(KEY_EVERY).await;
                let Some(key) = typing.borrow_mut().press(now_ns()) else { continue };
                key_send.write(&key).await?;
            }
        } => ended,
        ended = async {
            let mut buffer = [0; KEY_BYTES];
            loop {
                match key_receive.read(&mut buffer).await? {
                    0 => bail!("the echoes have ended"),
                    read => typing.borrow_mut().on_echo(read, now_ns()),
                }
            }
        } => ended,
        ended = tell(&*carried.session, &typing, watched) => ended,
    }
}

/// Sends the voice, each message at its time. One that finds no room until it is late is left out.
async fn speak(session: &dyn Session, clock: &MonotonicClock) -> Result<()> {
    let origin_ns = now_ns();
    for index in 0u64.. {
        let due_ns = origin_ns + index * VOICE_EVERY.as_nanos() as u64;
        clock.sleep_until(due_ns).await;
        let left_ns = (due_ns + VOICE_DEADLINE.as_nanos() as u64).saturating_sub(now_ns());
        if left_ns == 0 {
            continue;
        }
        let mut message = [index.to_be_bytes(), due_ns.to_be_bytes()].concat();
        message.resize(VOICE_BYTES, 0x33);
        session.send_message(Bytes::from(message), Some(Duration::from_nanos(left_ns))).await?;
    }
    Ok(())
}

/// Keystrokes that await their echoes.
#[derive(Default)]
struct Typing {
    /// When each was pressed.
    awaited: VecDeque<u64>,
    /// Bytes of the first one's echo that have come.
    bytes: usize,
    /// The longest wait since it was told, in nanoseconds.
    longest_ns: Option<u64>,
}

impl Typing {
    /// The bytes of a key that is pressed; `None` = too many are awaited.
    fn press(&mut self, now_ns: u64) -> Option<[u8; KEY_BYTES]> {
        if self.awaited.len() >= AWAITED_MAX {
            return None;
        }
        self.awaited.push_back(now_ns);
        Some([b'k'; KEY_BYTES])
    }

    fn on_echo(&mut self, bytes: usize, now_ns: u64) {
        self.bytes += bytes;
        while self.bytes >= KEY_BYTES {
            self.bytes -= KEY_BYTES;
            if let Some(pressed_ns) = self.awaited.pop_front() {
                self.longest_ns = self.longest_ns.max(Some(now_ns.saturating_sub(pressed_ns)));
            }
        }
    }

    /// The longest wait since this was asked last, in milliseconds.
    fn take_ms(&mut self, now_ns: u64) -> Option<f64> {
        let oldest_ns = self.awaited.front().map(|pressed_ns| now_ns.saturating_sub(*pressed_ns));
        // What is awaited for less than a round trip says nothing yet.
        let longest_ns = match self.longest_ns.take() {
            None => oldest_ns,
            some => some.max(oldest_ns.filter(|ns| *ns > TICK.as_nanos() as u64)),
        };
        longest_ns.map(|ns| ns as f64 / 1e6)
    }
}

/// A connection of UTS, and the profiles that were told of it.
struct Watched {
    connection: uts::Connection,
    events: uts::Events,
    flows: [(Traffic, FlowId); 3],
    /// The profiles of the flow and of the connection.
    told: [Option<(Profile, Profile)>; 3],
}

async fn connect(kind: Kind, to: &str, peer: uts::Fingerprint) -> Result<(Carried, Watched)> {
    let mut options = ConnectOptions::pinned(peer);
    options.connection = config(kind, Traffic::File);
    let connection = uts::connect(to, options).await?;
    let requiring = |traffic| FlowOptions::requiring(required(kind, traffic, Asks::default()));
    // The first flow is that of messages, and groups are numbered as their flows are opened.
    let voice = connection.open_flow(requiring(Traffic::Voice)).await?;
    let keys = connection.open_flow(requiring(Traffic::Keys)).await?;
    let file = connection.open_flow(FlowOptions::default()).await?;
    let flows = [(Traffic::File, file.id()), (Traffic::Voice, voice.id()), (Traffic::Keys, keys.id())];
    let events = connection.events();
    let session =
        Rc::new(UniversalSession::beside(connection.clone(), Role::Client, Some(voice), Opened::Streams));
    let (file, keys) = (session.stream(file), session.stream(keys));
    Ok((Carried { session, file, keys }, Watched { connection, events, flows, told: Default::default() }))
}

impl Watched {
    /// Says what is new.
    fn tell(&mut self) -> Result<()> {
        while let Some(event) = self.events.try_next() {
            if let ConnectionEvent::Exchange(step) = event
                && let Some(step) = self.step(&step)
            {
                say(&Word::Exchange(step))?;
            }
        }
        for ((traffic, flow), told) in self.flows.into_iter().zip(&mut self.told) {
            let profiles = self
                .connection
                .inspect(|c| c.flow_profile(Direction::Out, flow).zip(c.profile(Direction::Out)))
                .flatten();
            if let Some(profiles) = profiles.filter(|profiles| Some(profiles) != told.as_ref()) {
                say(&Word::Stack(traffic, tiles(&profiles.0, &profiles.1)))?;
                *told = Some(profiles);
            }
        }
        Ok(())
    }

    /// A step of an exchange of what this end sends.
    fn step(&self, event: &ExchangeEvent) -> Option<Step> {
        let of = |group: &u8| Traffic::ALL.get(usize::from(*group)).copied();
        let step = |kind: &str, epoch: &u32, group: &u8| Step {
            epoch: *epoch,
            kind: kind.to_owned(),
            traffic: of(group),
            ..Step::default()
        };
        Some(match event {
            ExchangeEvent::Requested {
                direction: Direction::Out,
                group,
                epoch,
                seen,
                changes,
                expects,
                ..
            } => Step {
                saw: seen.clone(),
                changed: changes.clone(),
                expects: expects.clone(),
                ..step("asked", epoch, group)
            },
            ExchangeEvent::Completed { direction: Direction::Out, group, epoch, .. } => {
                step("agreed", epoch, group)
            }
            ExchangeEvent::Refused { direction: Direction::Out, group, epoch, function, why } => {
                Step { brought: format!("{}: {why}", function.name()), ..step("refused", epoch, group) }
            }
            ExchangeEvent::Failed { direction: Direction::Out, group, epoch } => step("failed", epoch, group),
            ExchangeEvent::Brought { epoch, line } => {
                Step { epoch: *epoch, kind: "brought".to_owned(), brought: line.clone(), ..Step::default() }
            }
            _ => return None,
        })
    }
}

/// The stack of a flow. What all flows share is that of the connection.
fn tiles(flow: &Profile, connection: &Profile) -> Vec<Tile> {
    let tile = |function: &uts::Function| {
        let profile = if function.is_shared() { connection } else { flow };
        Tile {
            function: function.name().to_owned(),
            mechanism: profile.describe(*function),
            inert: profile.is_inert(*function),
            shared: function.is_shared(),
        }
    };
    uts::Function::ALL.iter().map(tile).collect()
}

async fn tell(session: &dyn Session, typing: &RefCell<Typing>, mut watched: Option<Watched>) -> Result<()> {
    let mut asked = listen()?;
    loop {
        tokio::time::sleep(TICK).await;
        while let (Ok(asks), Some(watched)) = (asked.try_recv(), &watched) {
            watched.connection.set_requirements(required(Kind::Uts, Traffic::File, asks))?;
        }
        let loss = watched.as_ref().map(|watched| watched.connection.facts().loss * 100.0);
        if let Some(watched) = &mut watched {
            watched.tell()?;
        }
        let keys_ms = typing.borrow_mut().take_ms(now_ns());
        let rtt = session.status().and_then(|status| status.rtt);
        say(&Word::Typed(Typed { keys_ms, rtt_ms: rtt.map(|rtt| rtt.as_secs_f64() * 1e3), loss }))?;
    }
}

/// Lines of standard input that say what is asked of the connection from now on.
fn listen() -> Result<UnboundedReceiver<Asks>> {
    let (sender, asked) = unbounded_channel();
    std::thread::Builder::new().name("asks".to_owned()).spawn(move || {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while matches!(read_input(&mut byte), Ok(1)) {
            if byte == *b"\n" {
                let asks = serde_json::from_slice(&std::mem::take(&mut line));
                if asks.is_ok_and(|asks| sender.send(asks).is_err()) {
                    return;
                }
            } else if line.len() < LINE_BYTES_MAX {
                line.extend(byte);
            }
        }
    })?;
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::super::server::number;
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_wait_is_told_while_it_lasts() {
        let mut typing = Typing::default();
        assert_eq!(typing.take_ms(0), None);
        typing.press(0).unwrap();
        typing.press(200 * MS).unwrap();
        assert_eq!(typing.take_ms(250 * MS), Some(250.0), "nothing has come: the oldest waits");
        typing.on_echo(KEY_BYTES - 1, 260 * MS);
        assert_eq!(typing.take_ms(300 * MS), Some(300.0), "a part of an echo is none");
        typing.on_echo(1, 310 * MS);
        assert_eq!(typing.take_ms(320 * MS), Some(310.0));
        typing.on_echo(KEY_BYTES, 350 * MS);
        assert_eq!(typing.take_ms(350 * MS), Some(150.0));
        for press in 0..AWAITED_MAX {
            assert!(typing.press(press as u64).is_some());
        }
        assert!(typing.press(0).is_none(), "who sees nothing types no more");
    }

    #[test]
    fn a_message_has_its_numbers() {
        let message = [7u64.to_be_bytes(), 9u64.to_be_bytes()].concat();
        assert_eq!((number(&message, 0), number(&message, 8), number(&message, 9)), (Some(7), Some(9), None));
    }
}
