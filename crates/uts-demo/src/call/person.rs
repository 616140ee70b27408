//! A participant's program: what it asks of the transport, what it sends to another, and how it
//! shows what comes.

use super::log::{Kind, Log};
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use uts::levels::{Level, Levels, follow};
use uts::sync::{Bounds, Group, Member};
use uts::{Chunk, Connection, FlowOptions, MessageOptions, Rate, RecvFlow, Requirements, SendFlow};

/// Bytes of a voice's message: G.711 at 64 kbit/s (RFC 3551).
const VOICE_BYTES: usize = 160;

/// Bytes of where a pointer is.
const POINTER_BYTES: usize = 20;

/// Bytes that say what a message is: kind, level, and when it was made.
const HEAD_BYTES: usize = 6;

/// Levels of a participant: rates of sound and picture together, in kbit/s, and the share that may
/// be lost of them.
pub(super) const LEVELS: [(&str, u64, f64); 4] = [
    ("sound alone", 70, 0.3),
    ("small picture", 400, 0.1),
    ("medium picture", 1000, 0.05),
    ("large picture", 2200, 0.03),
];

/// Requirements of all that is said and shown: messages that nothing waits for, which are repeated
/// while that is of use, and handed over as soon as the jitter allows.
const ASKED: [&str; 6] = [
    "preserveMsgBoundaries=require",
    "preserveOrder=avoid",
    "connCapacityProfile=low-latency-interactive",
    "reliability=prefer",
    "uts.degradation=reliability",
    "uts.consent=playout/adaptive",
];

/// Requirements of one kind. What is repeated until it is given up arrives before it would be
/// handed over.
///
/// # Errors
/// They are not said rightly.
pub(super) fn requirements(kind: Kind) -> Result<Requirements> {
    let own = match kind {
        Kind::Voice => ["msgLifetime=150ms", "uts.playoutDelay=200ms"],
        Kind::Picture => ["msgLifetime=200ms", "uts.playoutDelay=300ms"],
        Kind::Pointer => ["msgLifetime=300ms", "uts.playoutDelay=400ms"],
    };
    let mut requirements = Requirements::default();
    for property in ASKED.into_iter().chain(own) {
        requirements.assign(property).with_context(|| format!("cannot ask for {property}"))?;
    }
    Ok(requirements)
}

fn levels() -> Result<Levels> {
    let level = |(name, kbit, loss): (&str, u64, f64)| Level {
        name: name.to_owned(),
        rate: Rate::from_bits_per_sec(kbit * 1000),
        loss,
    };
    Ok(Levels::new(LEVELS.into_iter().map(level).collect())?)
}

/// Bytes of a picture at a level; 0 = there is none.
fn picture_bytes(level: usize) -> usize {
    let (kbit, sound) = (LEVELS[level].1, LEVELS[0].1);
    let bits = (kbit - sound) * 1000 * u64::try_from(Kind::Picture.every().as_millis()).unwrap_or(0) / 1000;
    usize::try_from(bits / 8).unwrap_or(0)
}

/// Sends all that one participant says and shows to another, until the connection ends.
///
/// # Errors
/// A flow is refused.
pub(super) async fn speak(connection: Connection, log: Log, has_pointer: bool) -> Result<()> {
    let level = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pointer || has_pointer) {
        let options = match kind {
            // The policy looks after what belongs to the connection.
            Kind::Picture => FlowOptions::default(),
            _ => FlowOptions { priority: 0, ..FlowOptions::requiring(requirements(kind)?) },
        };
        let flow = connection.open_flow(options).await.context("a flow cannot be opened")?;
        let (send, _recv) = flow.split();
        tasks.spawn(send_all(send, kind, level.clone(), log.clone()));
    }
    let mut events = connection.events();
    let logged = log.clone();
    tasks.spawn(async move {
        while let Some(event) = events.next().await {
            logged.event(&event);
        }
    });
    let mut follower = follow(&connection, levels()?);
    while let Some(change) = follower.next().await {
        level.store(change.to, Ordering::Relaxed);
        log.level(change.to, change.why);
    }
    Ok(())
}

/// Makes messages of one kind and sends them, until nobody wants them any more.
async fn send_all(mut send: SendFlow, kind: Kind, level: Arc<AtomicUsize>, log: Log) {
    let mut ticks = interval(kind.every());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        let level = level.load(Ordering::Relaxed);
        let bytes = match kind {
            Kind::Voice => VOICE_BYTES,
            Kind::Pointer => POINTER_BYTES,
            Kind::Picture => picture_bytes(level),
        };
        if bytes == 0 {
            continue;
        }
        let made_ms = log.made(kind);
        let mut message = vec![0; bytes.max(HEAD_BYTES)];
        message[0] = kind as u8;
        message[1] = u8::try_from(level).unwrap_or(u8::MAX);
        message[2..HEAD_BYTES].copy_from_slice(&made_ms.to_be_bytes());
        if send.send_message(message.into(), MessageOptions::default()).await.is_err() {
            return;
        }
    }
}

/// Flows that are shown together, with their names in the group.
#[derive(Clone, Debug)]
struct Together {
    group: Arc<Mutex<Group>>,
    members: [Member; 3],
}

impl Together {
    fn new() -> Self {
        let mut group = Group::new();
        let members = [group.reference(), group.add(Bounds::PICTURE), group.add(Bounds::POINTER)];
        Together { group: Arc::new(Mutex::new(group)), members }
    }

    fn lock(&self) -> MutexGuard<'_, Group> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows all that comes from another participant, until the connection ends.
pub(super) async fn listen(connection: Connection, log: Log) {
    let together = Together::new();
    let mut tasks = JoinSet::new();
    while let Some(flow) = connection.accept_flow().await {
        let (_send, recv) = flow.split();
        tasks.spawn(show_all(recv, together.clone(), log.clone()));
    }
}

async fn show_all(mut recv: RecvFlow, together: Together, log: Log) {
    let mut shows = JoinSet::new();
    while let Ok(Some(chunk)) = recv.recv_chunk(usize::MAX).await {
        let (message, timing) = match chunk {
            Chunk::Timed { message, timing } => (message, Some(timing)),
            // The sender's playout is not agreed on yet.
            Chunk::Message(message) => (message, None),
            // The last picture stays where one is missing.
            _ => continue,
        };
        let Some((head, _)) = message.split_first_chunk::<HEAD_BYTES>() else { continue };
        let Some(kind) = Kind::ALL.into_iter().find(|kind| *kind as u8 == head[0]) else { continue };
        let (level, made_ms) = (head[1], u32::from_be_bytes([head[2], head[3], head[4], head[5]]));
        let Some(timing) = timing else {
            log.shown(kind, made_ms, level);
            continue;
        };
        let member = together.members[kind as usize];
        let hold = together.lock().hold(member, &timing);
        let (together, log) = (together.clone(), log.clone());
        shows.spawn(async move {
            sleep(hold).await;
            together.lock().shown(member, log.elapsed(), timing.media);
            log.shown(kind, made_ms, level);
        });
        while shows.try_join_next().is_some() {}
    }
}
