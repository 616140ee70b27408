//! Exchanges, as the hub sees them. Frames become messages of the two machines ([`Exchanges`]).
//! A decision of a machine becomes a stack.
//!
//! [`Exchanges`]: crate::connection::parts::Exchanges

use crate::bug::bug;
use crate::connection::agreement::numbers::{own, peers};
use crate::connection::agreement::refusal::{Refusal, RefusalReason, Terms, lacks};
use crate::connection::parts::{MESSAGES_MAX, Signal};
use crate::connection::stage::Open;
use crate::connection::{CloseReason, Event, Ways};
use crate::consent::Answering;
use crate::event::{Direction, ExchangeEvent, FlowId};
use crate::exchange::{self, Busy, GROUPS_MAX, Machine, Message};
use crate::synthesis::ReceiveStack;
use uts_functions::flow::FlowControl as _;
use uts_functions::numbering::{
    choice_from_wire, from_wire, function_from_wire, function_to_wire, to_wire, to_wire_choice,
};
use uts_functions::profile::ProfileError;
use uts_functions::{Choice, Function, Numbering, Profile, Time};
use uts_wire::frame::{self, Frame};

/// Why an exchange could not be asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The profile cannot be built here.
    #[error("{0}")]
    Profile(#[from] ProfileError),
    /// Packets without protection need the consent of both ends.
    #[error("protection/none needs both ends' consent (uts.security=unprotected here and at the peer)")]
    Unprotected,
    /// The peer's library lacks a mechanism.
    #[error("the peer has no {}/{mechanism}", function.name())]
    PeerLacks {
        /// The function.
        function: Function,
        /// The mechanism.
        mechanism: &'static str,
    },
    /// Another exchange is under way.
    #[error("{0}")]
    Busy(#[from] Busy),
    /// The connection is not established, or is over.
    #[error("the connection is not established")]
    NotConnected,
}

/// A profile that a group is to have.
struct Wish {
    group: u8,
    profile: Profile,
    how: How,
}

/// A request, as far as the terms depend on it.
#[derive(Clone, Copy)]
pub(in crate::connection) struct Asked {
    /// The group whose requirements count; 0 for what the peer sends.
    pub of_group: u8,
    /// The epoch that the peer says it uses for group 0.
    pub using: Option<u32>,
    /// A function in the profile that this end does not know.
    pub stranger: Option<u8>,
}

/// Acceptance of a profile for a group.
type Accept<'a> = dyn Fn(u8, &Profile) -> Result<(), Refusal> + 'a;

/// Ways in which a profile comes into use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Once the peer has agreed.
    Asked,
    /// The same; it is the profile that the group has: only the epoch is to be new.
    Renewed,
    /// At once, where that can be taken back.
    AtOnce,
}

impl Open {
    pub(in crate::connection) fn request_profile(
        &mut self,
        now: Time,
        direction: Direction,
        profile: Profile,
    ) -> Result<u32, ExchangeError> {
        self.request_exchange(now, direction, 0, profile, Reasons::default())
    }

    pub(in crate::connection) fn request_exchange(
        &mut self,
        now: Time,
        direction: Direction,
        group: u8,
        profile: Profile,
        reasons: Reasons,
    ) -> Result<u32, ExchangeError> {
        let is_implicit = direction == Direction::Out && self.is_to_be_implicit(group, &profile);
        let how = if is_implicit { How::AtOnce } else { How::Asked };
        self.ask_for(now, direction, Wish { group, profile, how }, reasons)
    }

    pub(in crate::connection) fn use_profile(
        &mut self,
        now: Time,
        profile: Profile,
    ) -> Result<u32, ExchangeError> {
        let wish = Wish { group: 0, profile, how: How::AtOnce };
        self.ask_for(now, Direction::Out, wish, Reasons::default())
    }

    fn ask_for(
        &mut self,
        now: Time,
        direction: Direction,
        wish: Wish,
        reasons: Reasons,
    ) -> Result<u32, ExchangeError> {
        let Wish { group, profile, how } = wish;
        if !self.life.is_live() {
            return Err(ExchangeError::NotConnected);
        }
        profile.check()?;
        if profile.is_inert(Function::Protection) && !self.may_go_unprotected() {
            return Err(ExchangeError::Unprotected);
        }
        if let Some(function) = lacks(&self.agreement.peer_library, &profile) {
            return Err(ExchangeError::PeerLacks { function, mechanism: profile.name(function) });
        }
        let changes = changes(&self.profile_of(direction, group), &profile);
        let how = if how == How::AtOnce && !self.can_go_back(group, &profile) { How::Asked } else { how };
        let mut asked = self.ask_machine(now, direction, group, profile, how);
        if let Err(Busy::UnderWay { .. }) = &asked {
            //
            if let Some(machine) = self.parts.exchanges.machine(direction) {
                machine.settle(|epoch| self.ways.outbound.is_under_way(epoch));
            }
            asked = self.ask_machine(now, direction, group, profile, how);
        }
        let epoch = match asked {
            // the oldest epoch's group goes first, to the profile that it has.
            Err(Busy::Span { group: oldest }) if how != How::Renewed => {
                let seen = format!("the epoch of group {oldest} is too old");
                let reasons = Reasons::new(seen, "a new epoch, the same profile");
                self.request_renewal(now, direction, oldest, reasons)?;
                return Err(ExchangeError::Busy(Busy::Span { group: oldest }));
            }
            other => other?,
        };
        self.parts.exchanges.asked[direction as usize] = Some(Box::new((epoch, profile)));
        let Reasons { seen, path, expects } = reasons;
        let event = ExchangeEvent::Requested { direction, group, epoch, seen, path, changes, expects };
        self.ways.events.push_back(Event::Exchange(event.into()));
        if direction == Direction::Out {
            self.put_in_envelopes();
        }
        self.drain_exchange(now, direction);
        Ok(epoch)
    }

    fn ask_machine(
        &mut self,
        now: Time,
        direction: Direction,
        group: u8,
        profile: Profile,
        how: How,
    ) -> Result<u32, Busy> {
        let machine = self.machine_of(direction);
        match how {
            How::Asked => machine.request(now, group, profile),
            How::Renewed => machine.renew(now, group, profile),
            How::AtOnce => machine.use_at_once(now, group, profile),
        }
    }

    /// Asks for a new epoch of a group with the profile that it has. Where the group has yet to
    /// follow group 0 in what is shared, a request for what it has would be refused (exchange.md
    /// it follows by the same request.
    pub(in crate::connection) fn request_renewal(
        &mut self,
        now: Time,
        direction: Direction,
        group: u8,
        reasons: Reasons,
    ) -> Result<u32, ExchangeError> {
        let wanted = (direction == Direction::Out).then(|| self.wanted_by_group(group)).flatten();
        let profile = wanted.unwrap_or_else(|| self.profile_of(direction, group));
        self.ask_for(now, direction, Wish { group, profile, how: How::Renewed }, reasons)
    }

    /// Both ends have said that they accept packets without protection.
    pub(in crate::connection) fn may_go_unprotected(&self) -> bool {
        self.allows_unprotected() && self.agreement.peer_allows_unprotected
    }

    /// Profile in use for a group; the profile of group 0 where it has none yet.
    pub(in crate::connection) fn profile_of(&self, direction: Direction, group: u8) -> Profile {
        let of = |group| match direction {
            Direction::Out => self.ways.outbound.stack(group).map(|s| *s.profile),
            Direction::In => {
                // An epoch that this end only asks for is open as well.
                let asked = self.parts.exchanges.asked_epoch(direction);
                let is_agreed = |s: &&ReceiveStack| s.group == group && Some(s.epoch) != asked;
                self.ways.inbound.stacks.iter().rev().find(is_agreed).map(|s| *s.profile)
            }
        };
        of(group).or_else(|| of(0)).unwrap_or_else(Profile::bare)
    }

    pub(in crate::connection) fn on_exchange_frame(
        &mut self,
        now: Time,
        frame: &Frame<'_>,
    ) -> Result<(), CloseReason> {
        let mut stranger = None;
        let (seen_by_peer, message) = match frame {
            Frame::RequestPf(f) => {
                let profile;
                (profile, stranger) = from_wire(&f.profile, peers(&self.ways.rare));
                (f.direction, Message::Request { epoch: f.epoch, group: f.group, using: f.using, profile })
            }
            Frame::AckPf(f) => (f.direction, Message::Ack { epoch: f.epoch }),
            Frame::NakPf(f) => {
                let peer = peers(&self.ways.rare);
                let function = function_from_wire(f.function, peer).unwrap_or(Function::Establishment);
                let alternative = f.alternative.as_ref().map(|c| choice_from_wire(function, c, peer));
                let reason = RefusalReason::from_number(f.reason);
                let refusal = Refusal::new(function, reason, alternative);
                (f.direction, Message::Nak { epoch: f.epoch, refusal })
            }
            Frame::ConfirmPf(f) => (f.direction, Message::Confirm { epoch: f.epoch }),
            Frame::StalePf(f) => (f.direction, Message::Stale { epoch: f.epoch, highest: f.highest }),
            _ => return Ok(()),
        };
        let direction = own_direction(seen_by_peer);
        let (of_group, using) = match &message {
            Message::Request { group, .. } if direction == Direction::Out => (*group, None),
            Message::Request { using, .. } => (0, using[0]),
            _ => (0, None),
        };
        let asked = Asked { of_group, using, stranger };
        self.decide_on(now, direction, asked, |machine, accept| machine.handle(now, message, accept));
        Ok(())
    }

    /// Has a machine handle a message, with the terms by which this end accepts the profile that it
    /// may ask for. Then what the machine has decided is carried out.
    pub(in crate::connection) fn decide_on<T>(
        &mut self,
        now: Time,
        direction: Direction,
        asked: Asked,
        handle: impl FnOnce(&mut Machine<Profile, Refusal>, &Accept<'_>) -> T,
    ) -> T {
        let may_go_unprotected = self.may_go_unprotected();
        let protection = self.shared_protection(direction, asked.using);
        let pto = self.ways.outbound.probe_timeout();
        let machine = self.parts.exchanges.begin_at(direction, pto);
        let (groups, config) = (&self.agreement.groups, &self.ways.config);
        let handled = handle(machine, &|group, profile| {
            if let Some(function) = asked.stranger {
                return Err(Refusal::of_stranger(function));
            }
            let requirements = groups.requirements_of(asked.of_group, config);
            let answering = Answering::new(requirements, direction);
            let library = config.library();
            Terms { library, may_go_unprotected, protection, answering }.accept(profile, group)
        });
        self.drain_exchange(now, direction);
        handled
    }

    /// Protection of group 0 as a request is decided on. Of what is open here, only the
    /// sender's request says what it uses: it may have given up what was agreed to last.
    pub(in crate::connection) fn shared_protection(
        &self,
        direction: Direction,
        using: Option<u32>,
    ) -> Choice {
        let stacks = &self.ways.inbound.stacks;
        let used = stacks.iter().find(|stack| using == Some(stack.epoch)).map(|stack| *stack.profile);
        *used.unwrap_or_else(|| self.profile_of(direction, 0)).get(Function::Protection)
    }

    /// Carries out what a machine has decided, then takes up what it has to say: an epoch is open
    /// before the peer hears of it.
    pub(in crate::connection) fn drain_exchange(&mut self, now: Time, direction: Direction) {
        while let Some(event) = self.parts.exchanges.machine(direction).and_then(Machine::poll_event) {
            self.on_exchange_event(now, direction, event);
        }
        while let Some(message) = self.parts.exchanges.machine(direction).and_then(Machine::poll_message) {
            // a peer that asks without end and acknowledges nothing has no answers pile up.
            // The oldest counts as lost.
            if self.parts.exchanges.pending.len() >= MESSAGES_MAX {
                self.parts.exchanges.pending.pop_front();
            }
            self.parts
                .exchanges
                .pending
                .push_back((direction, to_frame(direction, message, own(&self.ways.rare))));
        }
    }

    fn on_exchange_event(
        &mut self,
        now: Time,
        direction: Direction,
        event: exchange::Event<Profile, Refusal>,
    ) {
        match event {
            exchange::Event::Open { epoch, group, profile } => self.open_epoch(now, epoch, group, &profile),
            exchange::Event::Use { epoch, group, profile } => self.use_epoch(now, epoch, group, &profile),
            exchange::Event::Retire { epoch } => {
                self.retire_epoch(now, epoch);
            }
            exchange::Event::Back { group, .. } => self.go_back(now, group),
            exchange::Event::Accepted { epoch, group, took } => {
                self.send_bare(direction);
                self.parts.exchanges.completed += 1;
                let asked = self.parts.exchanges.asked[direction as usize].take();
                let profile = asked.map_or_else(|| self.profile_of(direction, group), |asked| asked.1);
                let event = ExchangeEvent::Completed { direction, group, epoch, profile, took };
                self.ways.events.push_back(Event::Exchange(event.into()));
            }
            exchange::Event::Refused { epoch, group, refusal } => {
                let (function, why) = (refusal.function, refusal.reason.words().to_owned());
                let event = ExchangeEvent::Refused { direction, group, epoch, function, why };
                self.ways.events.push_back(Event::Exchange(event.into()));
                match (direction, group) {
                    (_, 0) => self.on_refused(direction, &refusal),
                    (Direction::Out, _) => {
                        let asked = self.parts.exchanges.asked[direction as usize].take();
                        self.on_group_refused(group, asked.map(|asked| asked.1), &refusal);
                    }
                    (Direction::In, _) => {}
                }
            }
            // The peer's wish came first; a wish of this end's policy is formed anew from what then
            // holds.
            exchange::Event::Withdrawn { epoch, group, .. } | exchange::Event::Failed { epoch, group } => {
                let event = ExchangeEvent::Failed { direction, group, epoch };
                self.ways.events.push_back(Event::Exchange(event.into()));
            }
        }
    }

    fn open_epoch(&mut self, now: Time, epoch: u32, group: u8, profile: &Profile) {
        let old = self.profile_of(Direction::In, group);
        let inbound = &mut self.ways.inbound;
        if !inbound.open(epoch, group, profile) {
            return;
        }
        self.ways.flows.tell_readers(group, &mut self.ways.events);
        if !grants(profile) {
            self.ways.flows.has_come_free = true;
            self.ways.flows.incoming.release();
        }
        let asked_here =
            self.parts.exchanges.asked[Direction::In as usize].as_ref().is_some_and(|asked| asked.0 == epoch);
        if !asked_here {
            let changes = changes(&old, profile);
            let (direction, profile) = (Direction::In, *profile);
            let event = ExchangeEvent::Granted { direction, group, epoch, changes, profile };
            self.ways.events.push_back(Event::Exchange(event.into()));
        }
        // To grant credit that nobody needs harms nothing; not to grant it before the sender is
        // known to need none does.
        if grants(profile) {
            self.ways.adopt_flow_control(now, epoch);
        }
    }

    /// An epoch closes. If it governed flow control, and was opened for a request that came to
    /// nothing, the newest of those before governs again.
    fn retire_epoch(&mut self, now: Time, epoch: u32) {
        let inbound = &mut self.ways.inbound;
        let Some(group) = inbound.retire(epoch) else { return };
        self.ways.note_redundancy();
        self.ways.flows.tell_readers(group, &mut self.ways.events);
        let inbound = &self.ways.inbound;
        if inbound.flow_epochs.get(usize::from(group)) == Some(&epoch)
            && let Some(newest) = inbound.newest(group).map(|s| s.epoch)
        {
            self.ways.adopt_flow_control(now, newest);
        }
    }

    fn use_epoch(&mut self, now: Time, epoch: u32, group: u8, profile: &Profile) {
        let old = self.profile_of(Direction::Out, group);
        let packet_bytes = self.parts.size.current() as u64;
        let outbound = &mut self.ways.outbound;
        let had_offsets = outbound.stack(group).is_none_or(|s| s.layout.offsets);
        if !outbound.put_to_use(now, epoch, group, profile, packet_bytes) {
            return;
        }
        let asked_here = self.parts.exchanges.asked[Direction::Out as usize]
            .as_ref()
            .is_some_and(|asked| asked.0 == epoch);
        if !asked_here {
            let changes = changes(&old, profile);
            let (direction, profile) = (Direction::Out, *profile);
            let event = ExchangeEvent::Granted { direction, group, epoch, changes, profile };
            self.ways.events.push_back(Event::Exchange(event.into()));
        }
        self.follow_use(now, group, (&old, profile), had_offsets);
    }

    /// Packets of a group are built under another profile: its flows follow.
    pub(in crate::connection) fn follow_use(
        &mut self,
        now: Time,
        group: u8,
        (old, profile): (&Profile, &Profile),
        had_offsets: bool,
    ) {
        let stack = self.ways.outbound.stack(group);
        let has_offsets = stack.is_some_and(|s| s.layout.offsets);
        self.on_group_changed(group, profile);
        if !grants(profile) {
            self.ways.flows.outgoing.release();
            self.ways.go_on_sending();
        }
        if group == 0 {
            self.ways.flows.window_out = self.ways.outbound.window_of_flows(0);
        }
        let ids: Vec<u32> =
            self.ways.flows.iter().filter(|(_, f)| f.send.group == group).map(|(id, _)| id).collect();
        for id in ids {
            self.ways.begin_with_window(id);
            if !had_offsets && has_offsets {
                self.ways.place_flow(FlowId(id));
            }
            if old.get(Function::Retransmission) != profile.get(Function::Retransmission) {
                self.ways.recover_awaited(now, id);
            }
            self.ways.after_send_change(id);
        }
    }

    /// The machine of a direction, in which something is asked, with the time-out that now holds.
    fn machine_of(&mut self, direction: Direction) -> &mut Machine<Profile, Refusal> {
        let pto = self.ways.outbound.probe_timeout();
        self.parts.exchanges.begin_at(direction, pto)
    }

    /// Hands the machines the time-out that now holds.
    pub(in crate::connection) fn set_exchange_timers(&mut self) {
        for direction in [Direction::Out, Direction::In] {
            if let Some(machine) = self.parts.exchanges.machine(direction) {
                machine.set_pto(self.ways.outbound.probe_timeout());
            }
        }
    }

    /// The same in both directions, after something has become of messages, or time has passed.
    pub(in crate::connection) fn drain_exchanges(&mut self, now: Time) {
        for direction in [Direction::Out, Direction::In] {
            self.drain_exchange(now, direction);
        }
    }
}

impl Ways {
    /// The receiver's side of flow control changes hands: a sender whose data was free of credit
    /// before needs some (flow.md R-7).
    pub(in crate::connection) fn adopt_flow_control(&mut self, now: Time, epoch: u32) {
        let inbound = &mut self.inbound;
        let Some(stack) = inbound.stack(epoch) else {
            bug!("epoch {epoch} governs flow control and is not open");
            return;
        };
        let (group, template) = (stack.group, stack.flow.clone());
        if let Some(governs) = inbound.flow_epochs.get_mut(usize::from(group)) {
            *governs = epoch;
        }
        if group == 0 {
            let before = core::mem::replace(&mut self.flows.flow_template, template.clone());
            self.flows.has_other_window |= before.window_bytes() != template.window_bytes();
        }
        self.tell_if_receiving_is_free();
        let ids: Vec<u32> =
            self.flows.iter().filter(|(_, f)| f.receive.group == group).map(|(id, _)| id).collect();
        for id in ids {
            if let Some(flow) = self.flows.get_mut(id) {
                flow.receive.free_limit = flow.receive.limit();
                flow.receive.flow = template.clone();
            }
            self.consumed(now, id);
            self.flows.signals.insert(Signal::Credit(id));
        }
    }

    /// A flow that has sent nothing begins with the window of its group's flow control, within what
    /// the peer grants at the begin (flow.md R-24).
    pub(in crate::connection) fn begin_with_window(&mut self, id: u32) {
        let Some(group) = self.flows.get(id).map(|flow| flow.send.group) else { return };
        if self.outbound.stack(group).is_none() {
            return;
        }
        let first = self.flows.first_credit_out(self.outbound.window_of_flows(group));
        let most = self.flows.credit_initial_out;
        let send = self.flows.get_mut(id).map(|flow| &mut flow.send);
        if let Some(send) = send.filter(|send| send.buffer.sent() == 0 && send.limit <= most) {
            send.limit = first;
        }
    }

    /// Positions begin to be sent: the receiver is told where the flow stands. What is still in
    /// flight went without a position, so that it could not be told from a repeat: it is not
    /// repeated.
    fn place_flow(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id.0).filter(|flow| !flow.send.is_given_up()) {
            let buffer = &flow.send.buffer;
            // The end of the flow cannot be given up (sequencing.md R-4).
            let sent = buffer.sent().min(buffer.written() - u64::from(buffer.is_finished()));
            if sent == 0 {
                return;
            }
            flow.send.buffer.abandon(0..sent);
            flow.send.buffer.repeat_skip(0..sent);
            self.flows.signals.insert(Signal::Skip(id.0));
            self.after_send_change(id.0);
        }
    }
}

/// True if the receiver of data under a profile grants what may be sent.
pub(in crate::connection) fn grants(profile: &Profile) -> bool {
    profile.mechanism(Function::Flow).is_some_and(|flow| flow.facts.grants)
}

/// Why this end asks for an exchange, for people.
#[derive(Clone, Debug, Default)]
pub(in crate::connection) struct Reasons {
    pub seen: String,
    /// Facts of the path, where these are what led to it.
    pub path: String,
    pub expects: String,
}

impl Reasons {
    /// Reasons that are no facts of a path.
    pub fn new(seen: String, expects: &str) -> Self {
        Reasons { seen, path: String::new(), expects: expects.to_owned() }
    }
}

/// Changes between two profiles, in one line.
pub fn changes(old: &Profile, new: &Profile) -> String {
    let changes = old.changes_to(new);
    if changes.is_empty() { "nothing but the keys".into() } else { changes }
}

/// A direction that the peer named, as this end sees it.
pub(in crate::connection) fn own_direction(seen_by_peer: frame::Direction) -> Direction {
    match seen_by_peer {
        frame::Direction::FromSender => Direction::In,
        frame::Direction::ToSender => Direction::Out,
    }
}

fn to_frame(
    direction: Direction,
    message: Message<Profile, Refusal>,
    own: Option<&Numbering>,
) -> Frame<'static> {
    let direction = match direction {
        Direction::Out => frame::Direction::FromSender,
        Direction::In => frame::Direction::ToSender,
    };
    match message {
        Message::Request { epoch, group, using, profile } => {
            let mut groups = [None; frame::MAX_GROUPS];
            groups.iter_mut().zip(using).for_each(|(to, from)| *to = from);
            let profile = Box::new(to_wire(&profile, own));
            Frame::RequestPf(frame::RequestPf { direction, group, epoch, using: groups, profile })
        }
        Message::Ack { epoch } => Frame::AckPf(frame::AckPf { direction, epoch }),
        Message::Nak { epoch, refusal } => Frame::NakPf(frame::NakPf {
            direction,
            epoch,
            function: refusal.stranger.unwrap_or_else(|| function_to_wire(refusal.function, own)),
            reason: refusal.reason as u8,
            alternative: refusal.alternative.map(|c| to_wire_choice(refusal.function, &c, own)),
        }),
        Message::Confirm { epoch } => Frame::ConfirmPf(frame::ConfirmPf { direction, epoch }),
        Message::Stale { epoch, highest } => Frame::StalePf(frame::StalePf { direction, epoch, highest }),
    }
}

const _: () = assert!(GROUPS_MAX == frame::MAX_GROUPS);

#[cfg(test)]
mod tests;
