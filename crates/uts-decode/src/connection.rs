//! Knowledge of a connection that a bystander has: keys, and in each direction epochs with their
//! profiles.

use crate::handshake::{Message, Stream};
use crate::keylog::KeyLog;
use crate::secrets::{LongKeys, Suite, exported};
use std::collections::{BTreeMap, HashMap, VecDeque};
use uts_functions::detection::{self, Detection, Verdict};
use uts_functions::mechanism::{Choice, Params};
use uts_functions::numbering::from_wire;
use uts_functions::protection::{self, Direction, Protection, Secret};
use uts_functions::{Function, Numbering, Profile, detection as detect};
use uts_wire::packet::establishment::{EstablishmentPacket, Level};
use uts_wire::packet::{AdaptiveHeader, peek_epoch, sample, unmask};
use uts_wire::{ConnectionId, End, Hello};

/// The end that opened the connection, and the other one, as indices.
pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

/// Epochs of a direction that are kept: open ones are less than 32 apart (P-17), and packets are
/// captured late.
const EPOCHS_KEPT: usize = 128;

/// Words where a key log lacks a session.
const NO_SECRETS: &str = "no keys: the key log has no secrets of this session";

#[derive(Default)]
pub(crate) struct Connection {
    random: Option<[u8; 32]>,
    suite: Option<Suite>,
    /// By level and sender.
    long: [[Option<LongKeys>; 2]; Level::ALL.len()],
    streams: [[Stream; 2]; Level::ALL.len()],
    /// By sender.
    pub ways: [Way; 2],
    pub reset_tokens: Vec<[u8; 16]>,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Way {
    /// Secrets of epochs from `oldest` on; empty without keys.
    secrets: VecDeque<Secret>,
    oldest: u32,
    /// The highest epoch of which a packet was opened.
    highest: u32,
    largest: Option<u64>,
    profiles: BTreeMap<u32, (u8, Profile)>,
    /// Keys by epoch and cipher.
    keys: HashMap<(u32, u8), protection::Slot>,
    /// Numbers by which its sender writes mechanisms, where both ends said such (P-67).
    pub numbers: Option<Numbering>,
    /// Sizes of datagrams that came as one.
    pub sizes: Vec<usize>,
}

/// A packet without protection.
pub(crate) struct Opened {
    pub epoch: u32,
    pub number: u64,
    pub frames: Vec<u8>,
    /// It came damaged: what is not known to be right is not here.
    pub is_damaged: bool,
    /// The profile of its epoch is known. Else a trailer may end the frames.
    pub is_known: bool,
}

/// Facts that a packet of the handshake brought.
pub(crate) enum Learnt {
    Client(Option<Box<Hello>>),
    Server(Option<Suite>),
    Extensions(Option<Box<Hello>>),
}

impl Connection {
    /// Keys of the level Initial, from the id that the client's first packet went to (K-13).
    pub fn set_initial(&mut self, dcid: &ConnectionId) {
        if let Some([client, server]) = LongKeys::initial(dcid.as_slice()) {
            self.long[Level::Initial.index()] = [Some(client), Some(server)];
        }
    }

    /// Opens a packet of the handshake in place; says its number, and where its body stands.
    pub fn open_long(
        &self,
        sender: usize,
        packet: &EstablishmentPacket<'_>,
        bytes: &mut [u8],
    ) -> Result<(u32, core::ops::Range<usize>), &'static str> {
        let level = packet.header.level;
        let keys = self.long[level.index()][sender].as_ref().ok_or(match level {
            Level::Initial => "no keys: its first packet is not in the capture",
            Level::Handshake => NO_SECRETS,
            Level::Early => "no keys: those of an early request follow from a ticket, which no key log has",
        })?;
        keys.open(packet, bytes).ok_or("it does not authenticate")
    }

    /// Takes bytes of the handshake, and says what they told.
    pub fn on_handshake(
        &mut self,
        log: &KeyLog,
        sender: usize,
        level: Level,
        offset: u32,
        bytes: &[u8],
    ) -> Vec<Learnt> {
        let stream = &mut self.streams[level.index()][sender];
        stream.add(offset, bytes);
        let messages: Vec<Message> = core::iter::from_fn(|| stream.next_message()).collect();
        let learnt = messages.into_iter().map(|message| self.on_message(message)).collect();
        self.derive(log);
        learnt
    }

    fn on_message(&mut self, message: Message) -> Learnt {
        let read = |hello: Option<Vec<u8>>, end| {
            hello.and_then(|hello| Hello::parse(&hello, end).ok()).map(Box::new)
        };
        match message {
            Message::Client { random, hello } => {
                self.random = Some(random);
                let hello = read(hello, End::Client);
                if let Some(hello) = &hello {
                    self.begin_with(hello);
                    self.ways[CLIENT].numbers = numbers_of(hello);
                }
                Learnt::Client(hello)
            }
            Message::Server { suite } => {
                self.suite = suite;
                Learnt::Server(suite)
            }
            Message::Extensions { hello } => {
                let hello = read(hello, End::Server);
                self.reset_tokens.extend(hello.as_ref().and_then(|hello| hello.reset_token));
                let numbers = hello.as_deref().and_then(numbers_of);
                match numbers.filter(|_| self.ways[CLIENT].numbers.is_some()) {
                    Some(numbers) => self.ways[SERVER].numbers = Some(numbers),
                    None => self.ways[CLIENT].numbers = None,
                }
                Learnt::Extensions(hello)
            }
        }
    }

    /// the first profiles, under epoch 0.
    fn begin_with(&mut self, hello: &Hello) {
        for (sender, profile) in [(CLIENT, &hello.profile_out), (SERVER, &hello.profile_in)] {
            if let Some(profile) = profile {
                self.ways[sender].profiles.insert(0, (0, from_wire(profile, None).0));
            }
        }
    }

    /// Keys that follow from what is known by now.
    fn derive(&mut self, log: &KeyLog) {
        let (Some(random), Some(suite)) = (self.random, self.suite) else { return };
        let Some(session) = log.session(&random) else { return };
        let of_level = &mut self.long[Level::Handshake.index()];
        for (keys, secret) in of_level.iter_mut().zip([&session.client_handshake, &session.server_handshake])
        {
            if let (None, Some(secret)) = (&keys, secret) {
                *keys = LongKeys::of_secret(suite, secret);
            }
        }
        if self.ways[CLIENT].secrets.is_empty()
            && let Some(exported) = session.exporter.as_ref().and_then(|master| exported(suite, master))
        {
            for (way, direction) in
                self.ways.iter_mut().zip([Direction::ClientToServer, Direction::ServerToClient])
            {
                way.secrets.push_back(Secret::from_exporter(&exported, direction));
            }
        }
    }
}

/// Numbers that an end has said, if they make sense.
fn numbers_of(hello: &Hello) -> Option<Numbering> {
    let said = hello.numbers.as_deref()?;
    Numbering::of_peer(said, hello.mechanisms.iter().copied()).ok()
}

impl Way {
    /// A request for a profile: the epoch stands for it from now on. Says what it changes in
    /// its group.
    pub fn on_request(&mut self, epoch: u32, group: u8, profile: Profile) -> String {
        let before = self.profiles.range(..epoch).rev().find(|(_, (of, _))| *of == group);
        let said = match before {
            Some((_, (_, old))) if *old == profile => "the same profile".to_owned(),
            Some((_, (_, old))) => old.changes_to(&profile),
            None => profile.to_string(),
        };
        self.profiles.insert(epoch, (group, profile));
        while self.profiles.len() > EPOCHS_KEPT {
            self.profiles.pop_first();
        }
        said
    }

    /// The profile that an epoch stands for.
    pub fn profile(&self, epoch: u32) -> Option<&Profile> {
        self.profiles.get(&epoch).map(|(_, profile)| profile)
    }

    /// Opens a packet that came by this id.
    pub fn open(&mut self, dcid: &ConnectionId, bytes: &[u8]) -> Result<Opened, &'static str> {
        let first = *bytes.first().ok_or("it is empty")?;
        let pn_offset = AdaptiveHeader::pn_offset(bytes, dcid).ok_or("it ends within its header")?;
        let mut failed = if self.secrets.is_empty() { NO_SECRETS } else { "it does not authenticate" };
        for epoch in self.meant(peek_epoch(first)) {
            let known = self.profile(epoch).map(|profile| profile.get(Function::Protection).number);
            // Where the request is not in the capture, each cipher is tried: only one opens it.
            let ciphers = known.map_or_else(|| vec![1, 2], |cipher| vec![cipher]);
            for cipher in ciphers {
                match self.open_under(epoch, cipher, dcid, pn_offset, bytes) {
                    Ok(opened) => {
                        self.highest = self.highest.max(epoch);
                        self.largest = self.largest.max(Some(opened.number));
                        self.forget();
                        return Ok(opened);
                    }
                    Err(Some(why)) => failed = why,
                    Err(None) => {}
                }
            }
        }
        Err(failed)
    }

    /// Epochs that five bits may mean: the nearest to the highest in use comes first.
    fn meant(&self, low5: u8) -> impl Iterator<Item = u32> + use<> {
        let highest = self.highest;
        let least = highest.saturating_sub(31);
        let mut epochs: Vec<u32> =
            (least..=highest.saturating_add(31)).filter(|epoch| epoch % 32 == u32::from(low5)).collect();
        epochs.sort_by_key(|epoch| epoch.abs_diff(highest));
        epochs.into_iter()
    }

    fn secret(&mut self, epoch: u32) -> Option<&Secret> {
        while self.secrets.len() <= epoch.checked_sub(self.oldest)? as usize {
            let next = self.secrets.back()?.next();
            self.secrets.push_back(next);
        }
        self.secrets.get((epoch - self.oldest) as usize)
    }

    /// Drops what belongs to epochs that are long closed.
    fn forget(&mut self) {
        let kept = EPOCHS_KEPT as u32;
        while self.secrets.len() > 1 && self.oldest.saturating_add(kept) < self.highest {
            self.secrets.pop_front();
            self.oldest += 1;
        }
        let oldest = self.oldest;
        if self.keys.len() > 2 * EPOCHS_KEPT {
            self.keys.retain(|(epoch, _), _| *epoch >= oldest);
        }
    }

    /// `Err(None)` if another epoch or cipher may open it.
    fn open_under(
        &mut self,
        epoch: u32,
        cipher: u8,
        dcid: &ConnectionId,
        pn_offset: usize,
        bytes: &[u8],
    ) -> Result<Opened, Option<&'static str>> {
        if !self.keys.contains_key(&(epoch, cipher)) {
            let choice = Choice { number: cipher, params: Params::default() };
            let unkeyed = Secret::from_bytes([0; Secret::BYTES]);
            // Protection by none has no keys.
            let secret = if cipher == 0 { &unkeyed } else { self.secret(epoch).ok_or(None)? };
            let built = protection::Slot::build(&choice, secret);
            let built = built.ok_or(Some("its cipher is not of this library"))?;
            self.keys.insert((epoch, cipher), built);
        }
        let keys = &self.keys[&(epoch, cipher)];
        let mut packet = bytes.to_vec();
        let mask = match keys.sample_bytes() {
            0 => [0; 5],
            _ => keys.header_mask(sample(&packet, pn_offset).map_err(|_| None)?),
        };
        let truncated = unmask(&mut packet, pn_offset, &mask).map_err(|_| None)?;
        let number = truncated.expand(self.largest.map_or(0, |largest| largest + 1));
        let start = pn_offset + truncated.len();
        let sealed = packet.get_mut(start..).ok_or(None)?;
        let plain = keys.open(number, dcid.filled(), sealed).map_err(|_| None)?;
        packet.truncate(start + plain);
        let profile = self.profile(epoch);
        let detection = profile.and_then(|profile| detect::Slot::build(profile.get(Function::Detection), ()));
        let Some(detection) = detection else {
            let frames = packet.split_off(start);
            return Ok(Opened { epoch, number, frames, is_damaged: false, is_known: false });
        };
        let end = packet.len().checked_sub(detection.trailer_bytes()).filter(|end| *end >= start);
        let end = end.ok_or(Some("it ends within its trailer"))?;
        let mut trailer = packet.split_off(end);
        detection::add_left_out(truncated.left_out_of(number), &mut trailer);
        let verdict = detection.check(&mut packet, &trailer);
        let mut frames = packet.split_off(start);
        match verdict {
            Verdict::Right | Verdict::Repaired { .. } => {}
            Verdict::RightTo(at) => frames.truncate(at.saturating_sub(start)),
            Verdict::Wrong => return Err(Some("it is damaged")),
        }
        Ok(Opened { epoch, number, frames, is_damaged: verdict != Verdict::Right, is_known: true })
    }
}

impl Way {
    /// True if packets with a tag can be opened.
    pub fn has_keys(&self) -> bool {
        !self.secrets.is_empty()
    }
}
