//! The sender: messages into blocks, requests into repairs.
//!
//! Order of what leaves: repairs, as far as their share of the rate allows, then sources, then a
//! status when nothing else has left for a while. Memory is bounded by [`SenderSettings`]; what one
//! member, and all together, can have repeated is bounded by credits that sources earn.

mod block;
mod credit;

use crate::Answers;
use crate::backoff::{self, GRTT_FIRST, GRTT_MAX, GRTT_MIN};
use crate::code::{Code, PARITIES, SOURCES_MAX};
use crate::seal::SEALED_BYTES;
use crate::wire::{Advertised, BACKOFF_MAX, Body, ENTRIES_MAX, FromSender, MESSAGE_BYTES_MAX, Request};
use block::{Block, Repair};
use bytes::{BufMut, BytesMut};
use core::time::Duration;
use credit::Credit;
use std::collections::{BTreeMap, VecDeque};
use uts_functions::playout::MediaTime;
use uts_functions::{Rate, Time};

/// Choices of a sender.
#[derive(Clone, Debug)]
pub struct SenderSettings {
    /// Sources of a block, 1 to 64.
    pub sources: usize,
    /// Parities that are sent unasked with each block, 0 to 32.
    pub parities: usize,
    /// Rate of all that is sent. It is fixed: nothing here looks for congestion.
    pub rate: Rate,
    /// The longest time that a block waits to be full.
    pub fill: Duration,
    /// Age at which a block is given up.
    pub history: Duration,
    /// Bytes of blocks that are kept.
    pub history_bytes: usize,
    /// Bytes of messages that may wait to leave.
    pub waiting_bytes: usize,
    /// Longest wait before a request, in round trips of the group (K of RFC 5401), 1 to 32.
    pub backoff: u8,
    /// The manner in which requests are answered.
    pub answers: Answers,
}

impl Default for SenderSettings {
    fn default() -> Self {
        SenderSettings {
            sources: 16,
            parities: 1,
            rate: Rate::from_bits_per_sec(10_000_000),
            fill: Duration::from_millis(50),
            history: Duration::from_secs(10),
            history_bytes: 8 << 20,
            waiting_bytes: 1 << 20,
            // RFC 5401 section 3.2.2: 6 where requests go to the sender alone.
            backoff: 6,
            answers: Answers::Prompt,
        }
    }
}

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It does not fit into a packet.
    #[error("a message for a group has at most {MESSAGE_BYTES_MAX} bytes, and this has {0}")]
    TooLong(usize),
    /// As much waits to leave as may.
    #[error("more is handed over than the rate of the group lets leave")]
    Full,
    /// The sender has ended.
    #[error("the group has ended")]
    Ended,
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Sources that were sent for the first time.
    pub sources: u64,
    /// Parities that were sent unasked.
    pub unasked: u64,
    /// Repairs that were sent because they were asked for.
    pub repairs: u64,
    /// Status packets.
    pub statuses: u64,
    /// Requests that came.
    pub requests: u64,
    /// Repairs that were asked for beyond what a member, or all, may have.
    pub refused: u64,
    /// Requests for blocks that were given up.
    pub late: u64,
}

/// A member, as the sender sees it.
#[derive(Clone, Debug)]
struct Member {
    /// Round trip of its connection, or of the first request.
    base: Option<Duration>,
    /// Round trip lately: rises at once, and falls by steps.
    rtt: Duration,
    credit: Credit,
    /// The instant before which no other request of it counts.
    quiet_until: Time,
}

/// The sender of a group.
#[derive(Debug)]
pub struct Sender {
    settings: SenderSettings,
    code: Code,
    /// Blocks from `oldest` on; the last may be open.
    blocks: VecDeque<Block>,
    oldest: u32,
    bytes: usize,
    /// Sources that were not sent yet, as block and index.
    sources: VecDeque<(u32, u8)>,
    waiting: usize,
    /// Blocks, for each repair that is to leave.
    repairs: VecDeque<u32>,
    members: BTreeMap<u32, Member>,
    credit: Credit,
    grtt: Duration,
    /// The number of the next packet.
    number: u64,
    /// The instant at which the rate lets the next packet leave.
    next_at: Time,
    /// The instant of the next status, and the time from there to the one after.
    status: (Time, Duration),
    /// Blocks that were asked for, and of which no repair has said so yet.
    echoes: VecDeque<u32>,
    is_ended: bool,
    stats: SenderStats,
}

/// Time between two statuses of a sender that is silent, at the most.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Headers of IPv4 (RFC 791, 20 bytes) and UDP (RFC 768, 8 bytes), which count for the rate.
const IP_UDP_BYTES: usize = 28;

/// Time by which a sender may be behind its rate, and catch up.
const BURST: Duration = Duration::from_millis(2);

impl Sender {
    /// A sender of nothing yet. Settings out of their ranges are brought into them.
    pub fn new(mut settings: SenderSettings, now: Time) -> Self {
        settings.sources = settings.sources.clamp(1, SOURCES_MAX);
        settings.parities = settings.parities.min(PARITIES);
        settings.backoff = settings.backoff.clamp(1, BACKOFF_MAX);
        Sender {
            code: Code::default(),
            blocks: VecDeque::new(),
            oldest: 0,
            bytes: 0,
            sources: VecDeque::new(),
            waiting: 0,
            repairs: VecDeque::new(),
            members: BTreeMap::new(),
            credit: Credit::of_all(settings.sources),
            grtt: GRTT_FIRST,
            number: 0,
            next_at: now,
            status: (now, Duration::ZERO),
            echoes: VecDeque::new(),
            is_ended: false,
            stats: SenderStats::default(),
            settings,
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Round trip of the group.
    pub fn grtt(&self) -> Duration {
        self.grtt
    }

    /// Members of the group.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Bytes of blocks that are kept, with their parities.
    pub fn history_bytes(&self) -> usize {
        self.bytes
    }

    /// Choices that are in force.
    pub fn settings(&self) -> &SenderSettings {
        &self.settings
    }

    /// True if all has left that was handed over, and was ended.
    pub fn is_drained(&self) -> bool {
        self.is_ended && self.is_idle() && self.blocks.iter().all(|block| block.asked == 0)
    }

    /// True if nothing waits to leave as soon as the rate lets it.
    fn is_idle(&self) -> bool {
        let has_parities = |block: &Block| block.unasked > 0;
        self.sources.is_empty() && self.repairs.is_empty() && !self.blocks.iter().any(has_parities)
    }

    /// A member takes part. Returns its first block: all that is handed over from now on is in
    /// this block or in a later one. (G-25)
    pub fn join(&mut self, member: u32) -> u32 {
        self.close_block();
        let credit = Credit::of_member(self.settings.sources);
        self.members
            .insert(member, Member { base: None, rtt: Duration::ZERO, credit, quiet_until: Time::ZERO });
        self.next_block()
    }

    /// A member takes part no more.
    pub fn leave(&mut self, member: u32) {
        self.members.remove(&member);
        self.gather_grtt();
    }

    /// The round trip to a member was measured by other means: by its connection. (G-13)
    pub fn on_round_trip(&mut self, member: u32, rtt: Duration) {
        let Some(known) = self.members.get_mut(&member) else { return };
        known.base = Some(rtt);
        known.rtt = rtt.max(known.rtt - known.rtt / 8);
        self.gather_grtt();
    }

    /// Takes in a request of a member, of which the caller knows that it is the member's own.
    pub fn handle_request(&mut self, now: Time, member: u32, request: &Request) {
        let quiet = self.grtt / 8;
        let Some(known) = self.members.get_mut(&member) else { return };
        self.stats.requests += 1;
        // G-17
        if now < known.quiet_until {
            return;
        }
        known.quiet_until = now + quiet;
        known.on_echo(micros(now).wrapping_sub(request.echo));
        let mut credit = known.credit;
        for lack in &request.lacks {
            let until = now + self.settings.answers.gathers(self.grtt, self.settings.backoff);
            let Some(block) = self.block_mut(lack.block).filter(|block| block.is_closed) else {
                // G-12: what was given up is told by `oldest` in each packet.
                self.stats.late += u64::from(lack.block < self.oldest);
                continue;
            };
            let asked = block.lacking(lack, request.seen);
            // G-17
            let granted = asked.min(credit.left()).min(self.credit.left());
            self.stats.refused += (asked - granted) as u64;
            if granted == 0 {
                continue;
            }
            credit.spend(granted);
            self.credit.spend(granted);
            let Some(block) = self.block_mut(lack.block) else { continue };
            block.grant(lack, granted, until);
            if !self.echoes.contains(&lack.block) && self.echoes.len() < ENTRIES_MAX {
                self.echoes.push_back(lack.block);
            }
        }
        if let Some(known) = self.members.get_mut(&member) {
            known.credit = credit;
        }
        self.gather_grtt();
        self.release_repairs(now);
    }

    /// Takes a message to be sent.
    ///
    /// # Errors
    /// See [`SendError`]. The message is not sent then.
    pub fn send(&mut self, now: Time, message: &[u8]) -> Result<(), SendError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong(message.len()));
        }
        if self.is_ended || self.next_block() == u32::MAX {
            return Err(SendError::Ended);
        }
        if self.waiting + message.len() > self.settings.waiting_bytes {
            return Err(SendError::Full);
        }
        // G-7
        let mut source = BytesMut::with_capacity(4 + message.len());
        source.put_u32(micros(now));
        source.put_slice(message);
        self.waiting += message.len();
        self.bytes += source.len();
        if self.blocks.back().is_none_or(|block| block.is_closed) {
            self.blocks.push_back(Block::new(now));
        }
        let at = self.next_block() - 1;
        if let Some(block) = self.blocks.back_mut() {
            self.sources.push_back((at, block.push(source.freeze())));
            if block.sources.len() == self.settings.sources {
                self.close_block();
            }
        }
        self.forget(now);
        Ok(())
    }

    /// Nothing more is sent. Repairs and statuses go on.
    pub fn end(&mut self) {
        self.is_ended = true;
        self.close_block();
    }

    /// The next packet that may leave now, with its number.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(u64, FromSender)> {
        self.close_in_time(now);
        self.release_repairs(now);
        self.forget(now);
        if now < self.next_at {
            return None;
        }
        let body = match self.repair() {
            None if !self.echoes.is_empty() => self.status(now),
            None => self.source().or_else(|| self.status(now)),
            repair => repair,
        }?;
        let is_status = matches!(body, Body::Status { .. });
        let length = IP_UDP_BYTES + SEALED_BYTES + body.packet_bytes();
        self.next_at = self.next_at.max(now - BURST) + self.settings.rate.time_for(length as u64);
        if !is_status {
            self.status = (now + self.status_first(), self.status_first());
        }
        let number = self.number;
        self.number += 1;
        let advertised = Advertised {
            sent: micros(now),
            grtt: backoff::quantised(self.grtt),
            backoff: self.settings.backoff,
            members: u16::try_from(self.members.len()).unwrap_or(u16::MAX),
            oldest: self.oldest,
        };
        Some((number, FromSender { advertised, body }))
    }

    /// The instant at which [`Sender::poll_transmit`] has something to do.
    pub fn next_timeout(&self) -> Time {
        let is_waiting = !self.is_idle() || !self.echoes.is_empty();
        let paced = if is_waiting { Some(self.next_at) } else { None };
        let open = self.blocks.back().filter(|block| !block.is_closed);
        let full = open.map(|block| block.made + self.settings.fill);
        let gathered = self.blocks.iter().filter_map(|block| block.gathers_until).min();
        let timers = [paced, full, gathered, Some(self.status.0.max(self.next_at))];
        timers.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    /// The number of the block that is opened next.
    fn next_block(&self) -> u32 {
        self.oldest + self.blocks.len() as u32
    }

    fn block_mut(&mut self, number: u32) -> Option<&mut Block> {
        self.blocks.get_mut(number.checked_sub(self.oldest)? as usize)
    }

    /// Closes a block that has waited long enough to be full.
    fn close_in_time(&mut self, now: Time) {
        let open = self.blocks.back().filter(|block| !block.is_closed);
        if open.is_some_and(|block| block.made + self.settings.fill <= now) {
            self.close_block();
        }
    }

    /// Closes the last block: its parities may be sent. (G-8)
    fn close_block(&mut self) {
        let parities = self.settings.parities;
        let Some(block) = self.blocks.back_mut().filter(|block| !block.is_closed) else { return };
        block.is_closed = true;
        block.unasked = parities;
        block.queued = parities;
    }

    /// Queues repairs of blocks whose requests have been gathered.
    fn release_repairs(&mut self, now: Time) {
        for (block, number) in self.blocks.iter_mut().zip(self.oldest..) {
            if block.gathers_until.is_some_and(|until| until <= now) {
                block.gathers_until = None;
                self.repairs.extend(core::iter::repeat_n(number, block.asked));
                block.queued += block.asked;
                block.asked = 0;
            }
        }
    }

    /// A repair that is to leave.
    fn repair(&mut self) -> Option<Body> {
        while let Some(number) = self.repairs.pop_front() {
            if let Some(body) = self.repair_of(number) {
                self.stats.repairs += 1;
                self.echoes.retain(|echo| *echo != number);
                return Some(body);
            }
        }
        None
    }

    /// A source that is to leave, or an unasked parity behind the last of its block.
    fn source(&mut self) -> Option<Body> {
        let next = self.sources.front().map(|(block, _)| *block);
        if let Some(parity) = self.unasked(next) {
            return Some(parity);
        }
        let (number, index) = self.sources.pop_front()?;
        let before = self.before(number);
        let source = self.block_mut(number)?.sent(index)?;
        self.waiting -= source.len() - 4;
        self.stats.sources += 1;
        self.credit.earn();
        self.members.values_mut().for_each(|member| member.credit.earn());
        Some(Body::Source { block: number, index, before, source })
    }

    /// An unasked parity of a block before `next`, whose sources have left.
    fn unasked(&mut self, next: Option<u32>) -> Option<Body> {
        let end = next.map_or(self.blocks.len(), |next| next.saturating_sub(self.oldest) as usize);
        // All before have sent theirs.
        let at = (0..end).rev().take_while(|at| self.blocks[*at].unasked > 0).last()?;
        self.blocks.get_mut(at)?.unasked -= 1;
        self.stats.unasked += 1;
        self.repair_of(self.oldest + at as u32)
    }

    /// The next repair of a block.
    fn repair_of(&mut self, number: u32) -> Option<Body> {
        let (packet, before) = (self.number, self.before(number));
        let block = self.blocks.get_mut(number.checked_sub(self.oldest)? as usize)?;
        let (repair, made) = block.repair(&self.code, packet);
        let (more, count) = (u8::try_from(block.queued).unwrap_or(u8::MAX), block.sources.len() as u8);
        self.bytes += made;
        Some(match repair {
            Repair::Parity(parity, symbol) => Body::Parity { block: number, count, parity, more, symbol },
            Repair::Source(index, source) => Body::Source { block: number, index, before, source },
        })
    }

    /// Sources of the block before another; 0 if that is not known.
    fn before(&self, number: u32) -> u8 {
        let before = number.checked_sub(self.oldest + 1).and_then(|at| self.blocks.get(at as usize));
        before.map_or(0, |block| block.sources.len() as u8)
    }

    /// A status, if one is due. (G-10)
    fn status(&mut self, now: Time) -> Option<Body> {
        let is_echo = !self.echoes.is_empty();
        if now < self.status.0 && !is_echo {
            return None;
        }
        if !is_echo {
            let every = (self.status.1 * 2).clamp(self.status_first(), STATUS_EVERY);
            self.status = (now + every, every);
        }
        self.stats.statuses += 1;
        let echoes = core::mem::take(&mut self.echoes);
        let repairs = echoes.into_iter().filter_map(|number| {
            let block = self.block_mut(number)?;
            let repairs = u8::try_from(block.asked + block.queued).unwrap_or(u8::MAX);
            (repairs > 0).then_some((number, repairs))
        });
        let repairs = repairs.collect();
        let closed = self.blocks.iter().zip(self.oldest..).filter(|(block, _)| block.is_closed).last();
        let last = closed.map_or((self.oldest, 0), |(block, at)| (at, block.sources.len() as u8));
        Some(Body::Status { last, is_end: self.is_ended && self.sources.is_empty(), repairs })
    }

    /// Time from the last packet to the first status.
    fn status_first(&self) -> Duration {
        (self.grtt * 2).clamp(Duration::from_millis(20), STATUS_EVERY)
    }

    /// Lets go of blocks that are too old, and of the oldest where there are too many. (G-12)
    fn forget(&mut self, now: Time) {
        while let Some(block) = self.blocks.front().filter(|block| block.is_closed) {
            let is_old = block.made + self.settings.history < now || self.bytes > self.settings.history_bytes;
            if !is_old || !block.has_left() {
                break;
            }
            self.bytes -= block.bytes();
            self.blocks.pop_front();
            self.oldest += 1;
        }
        let oldest = self.oldest;
        self.repairs.retain(|number| *number >= oldest);
    }

    /// The longest round trip of a member, within bounds. (G-13)
    fn gather_grtt(&mut self) {
        let longest = self.members.values().map(|member| member.rtt).max();
        let known = longest.filter(|rtt| !rtt.is_zero());
        self.grtt = known.unwrap_or(GRTT_FIRST).clamp(GRTT_MIN, GRTT_MAX);
    }
}

impl Member {
    /// A request tells the round trip, by a clock that its maker could set otherwise: it may say at
    /// most four times what its connection takes. (G-13)
    fn on_echo(&mut self, micros: u32) {
        let rtt = Duration::from_micros(micros.into()).min(GRTT_MAX);
        let rtt = self.base.map_or(rtt, |base| rtt.min(base * 4 + Duration::from_millis(20)));
        self.rtt = rtt.max(self.rtt - self.rtt / 8);
    }
}

/// An instant on the wire.
fn micros(now: Time) -> u32 {
    MediaTime::before(now, Duration::ZERO).on_the_wire()
}
