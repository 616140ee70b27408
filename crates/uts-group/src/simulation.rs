//! A group in virtual time: one sender, any number of receivers with losses and delays of their
//! own, and losses that all share. Everything follows from a seed.

use crate::receiver::ReceiverStats;
use crate::sender::SenderStats;
use crate::wire::{Body, FromSender, Request};
use crate::{Event, Receiver, ReceiverSettings, Sender, SenderSettings};
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeSet, BinaryHeap};
use uts_functions::Time;
use uts_functions::fec::TinyMt32;

/// A group, and what it carries.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Receivers.
    pub receivers: usize,
    /// Time from the joining of one to that of the next; zero = all join at the begin.
    pub joins_every: Duration,
    /// Choices of the sender.
    pub sender: SenderSettings,
    /// Age at which receivers hand messages over.
    pub latency: Option<Duration>,
    /// Share of the sender's packets that no receiver gets.
    pub shared_loss: f64,
    /// Share that a receiver loses on its own, in either direction.
    pub own_loss: f64,
    /// The shortest and the longest way to a receiver.
    pub way: (Duration, Duration),
    /// Messages that are sent.
    pub messages: u32,
    /// Time between two of them.
    pub every: Duration,
    /// Bytes of each, 4 at least.
    pub bytes: usize,
    /// Seed of all that is random.
    pub seed: u64,
}

impl Default for Scene {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Scene {
            receivers: 10,
            joins_every: Duration::ZERO,
            sender: SenderSettings { parities: 0, ..SenderSettings::default() },
            latency: None,
            shared_loss: 0.0,
            own_loss: 0.01,
            way: (ms(15), ms(25)),
            messages: 1000,
            every: ms(5),
            bytes: 40,
            seed: 1,
        }
    }
}

/// Counts of a group at its end.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Counts of the sender.
    pub sender: SenderStats,
    /// Counts of all receivers together.
    pub receivers: ReceiverStats,
    /// Blocks of which a source was lost, by one receiver or more.
    pub loss_events: u64,
    /// Sources that were lost by one receiver or more.
    pub sources_lost: u64,
    /// Losses of sources, of all receivers.
    pub losses: u64,
    /// Receivers that have got every message since they joined that was not told to be missing, in
    /// order.
    pub whole: usize,
    /// The longest time from the making of a message to its handing over.
    pub delay_max: Duration,
}

impl Outcome {
    /// Requests by blocks of which something was lost.
    pub fn requests_per_loss_event(&self) -> f64 {
        self.sender.requests as f64 / self.loss_events.max(1) as f64
    }

    /// Repairs, unasked ones as well, by sources that were lost by anyone.
    pub fn repairs_per_lost_source(&self) -> f64 {
        (self.sender.repairs + self.sender.unasked) as f64 / self.sources_lost.max(1) as f64
    }
}

/// Things that happen at an instant.
enum Happening {
    Message,
    Joins(usize),
    SenderWakes,
    Arrives(usize, u64, FromSender),
    Wakes(usize),
    Asks(u32, Request),
}

struct End {
    /// `None` until it joins.
    receiver: Option<Receiver>,
    seed: u64,
    way: Duration,
    wakes: Time,
    /// The message that is due next.
    next: u64,
    is_whole: bool,
    has_ended: bool,
}

struct Group<'a> {
    scene: &'a Scene,
    random: TinyMt32,
    sender: Sender,
    ends: Vec<End>,
    happenings: Vec<Option<Happening>>,
    queue: BinaryHeap<Reverse<(Time, usize)>>,
    lost: BTreeSet<(u32, u8)>,
    settings: ReceiverSettings,
    sent: u32,
    wakes: Time,
    outcome: Outcome,
}

/// Virtual time for which repairs go on behind the last message.
const REST: Duration = Duration::from_secs(30);

/// Runs a group to its end.
pub fn run(scene: &Scene) -> Outcome {
    let mut group = Group::new(scene);
    for at in 0..scene.receivers {
        group.push(Time::ZERO + scene.joins_every * at as u32, Happening::Joins(at));
    }
    let end = Time::ZERO + scene.every * scene.messages + REST;
    group.push(Time::ZERO, Happening::Message);
    while let Some(Reverse((now, at))) = group.queue.pop() {
        let is_over = group.sent == scene.messages && group.ends.iter().all(|end| end.has_ended);
        if now > end || is_over {
            break;
        }
        if let Some(happening) = group.happenings[at].take() {
            group.happen(now, happening);
        }
    }
    group.finish()
}

impl<'a> Group<'a> {
    fn new(scene: &'a Scene) -> Self {
        let mut random = TinyMt32::new(scene.seed as u32);
        let sender = Sender::new(scene.sender.clone(), Time::ZERO);
        let (shortest, longest) = scene.way;
        let settings = ReceiverSettings {
            sources: sender.settings().sources,
            latency: scene.latency,
            answers: scene.sender.answers,
            ..ReceiverSettings::default()
        };
        let end = |_| {
            let way = shortest + (longest - shortest).mul_f64(uniform(&mut random));
            let seed = scene.seed << 32 ^ u64::from(random.next_number());
            End { receiver: None, seed, way, wakes: Time::NEVER, next: 0, is_whole: true, has_ended: false }
        };
        let ends = (0..scene.receivers).map(end).collect();
        Group {
            scene,
            ends,
            random,
            sender,
            settings,
            happenings: Vec::new(),
            queue: BinaryHeap::new(),
            lost: BTreeSet::new(),
            sent: 0,
            wakes: Time::NEVER,
            outcome: Outcome::default(),
        }
    }

    fn push(&mut self, at: Time, happening: Happening) {
        self.queue.push(Reverse((at, self.happenings.len())));
        self.happenings.push(Some(happening));
    }

    fn loses(&mut self, share: f64) -> bool {
        uniform(&mut self.random) < share
    }

    fn happen(&mut self, now: Time, happening: Happening) {
        match happening {
            Happening::Message => self.make(now),
            Happening::Joins(end) => {
                self.join(end);
                return self.look(now, end);
            }
            Happening::SenderWakes => self.wakes = Time::NEVER,
            Happening::Arrives(end, number, packet) => {
                if let Some(receiver) = &mut self.ends[end].receiver {
                    receiver.handle(now, number, packet);
                }
                return self.look(now, end);
            }
            Happening::Wakes(end) => {
                self.ends[end].wakes = Time::NEVER;
                return self.look(now, end);
            }
            Happening::Asks(member, request) => self.sender.handle_request(now, member, &request),
        }
        self.transmit(now);
    }

    fn join(&mut self, at: usize) {
        let first = self.sender.join(at as u32);
        let end = &mut self.ends[at];
        self.sender.on_round_trip(at as u32, end.way * 2);
        end.receiver = Some(Receiver::new(self.settings.clone(), first, end.seed));
        end.next = self.sent.into();
    }

    /// Hands the next message over.
    fn make(&mut self, now: Time) {
        let mut message = vec![0; self.scene.bytes.max(4)];
        message[..4].copy_from_slice(&self.sent.to_be_bytes());
        let sent = self.sender.send(now, &message);
        assert!(sent.is_ok(), "{sent:?} at {now:?}");
        self.sent += 1;
        if self.sent < self.scene.messages {
            self.push(now + self.scene.every, Happening::Message);
        } else {
            self.sender.end();
        }
    }

    fn transmit(&mut self, now: Time) {
        while let Some((number, packet)) = self.sender.poll_transmit(now) {
            let is_shared = self.loses(self.scene.shared_loss);
            for end in 0..self.ends.len() {
                if self.ends[end].receiver.is_none() {
                    continue;
                }
                if is_shared || self.loses(self.scene.own_loss) {
                    self.note_loss(&packet.body);
                } else {
                    let at = now + self.ends[end].way;
                    self.push(at, Happening::Arrives(end, number, packet.clone()));
                }
            }
        }
        let next = self.sender.next_timeout().max(now + Duration::from_micros(1));
        if next < self.wakes {
            self.wakes = next;
            self.push(next, Happening::SenderWakes);
        }
    }

    fn note_loss(&mut self, body: &Body) {
        if let Body::Source { block, index, .. } = body {
            self.outcome.losses += 1;
            self.lost.insert((*block, *index));
        }
    }

    /// Takes from a receiver what it has for others.
    fn look(&mut self, now: Time, at: usize) {
        let end = &mut self.ends[at];
        let Some(receiver) = &mut end.receiver else { return };
        while let Some(event) = receiver.poll_event(now) {
            match event {
                Event::Message(message) => {
                    let number =
                        u64::from(u32::from_be_bytes([message[0], message[1], message[2], message[3]]));
                    end.is_whole &= number == end.next;
                    end.next = number + 1;
                    let made = Time::ZERO + self.scene.every * number as u32;
                    self.outcome.delay_max = self.outcome.delay_max.max(now.since(made));
                }
                Event::Missing(count) => end.next += count,
                Event::Ended => end.has_ended = true,
            }
        }
        let (request, way) = (receiver.poll_request(now), end.way);
        let next = receiver.next_timeout(now);
        if next < end.wakes {
            end.wakes = next;
            self.push(next, Happening::Wakes(at));
        }
        if let Some(request) = request
            && !self.loses(self.scene.own_loss)
        {
            self.push(now + way, Happening::Asks(at as u32, request));
        }
    }

    fn finish(mut self) -> Outcome {
        self.outcome.sender = self.sender.stats();
        self.outcome.sources_lost = self.lost.len() as u64;
        let blocks: BTreeSet<u32> = self.lost.iter().map(|(block, _)| *block).collect();
        self.outcome.loss_events = blocks.len() as u64;
        let sum = &mut self.outcome.receivers;
        for end in &self.ends {
            let stats = end.receiver.as_ref().map(Receiver::stats).unwrap_or_default();
            sum.messages += stats.messages;
            sum.repaired += stats.repaired;
            sum.missing += stats.missing;
            sum.losses += stats.losses;
            sum.requests += stats.requests;
            sum.suppressed += stats.suppressed;
            sum.unneeded += stats.unneeded;
        }
        let is_whole = |end: &&End| end.is_whole && end.has_ended && end.next == u64::from(self.sent);
        self.outcome.whole = self.ends.iter().filter(is_whole).count();
        self.outcome
    }
}

/// A number from 0 to 1, which it never is.
fn uniform(random: &mut TinyMt32) -> f64 {
    f64::from(random.next_number()) / (f64::from(u32::MAX) + 1.0)
}
