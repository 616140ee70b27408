//! The machine at one end of a direction.

use super::open::OpenEpochs;
use super::repeat::{Due, Repeat};
use super::{Busy, EPOCH_SPAN, EVENTS_MAX, Event, GROUPS_MAX, Message, RETIRE_PTOS, Side, TRIES_MAX, Using};
use core::time::Duration;
use std::collections::VecDeque;
use uts_functions::Time;

/// The initiator's request, until it is answered or withdrawn. With `repeat` stopped it is *in
/// doubt* (X-21), unless packets carry it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking<P> {
    pub epoch: u32,
    pub group: u8,
    pub profile: P,
    pub using: Using,
    pub since: Time,
    pub repeat: Repeat,
    pub send: bool,
    /// Packets carry it: it is in use already, and no message.
    pub is_carried: bool,
}

impl<P> Asking<P> {
    /// Says whether an answer is still to come of itself.
    fn is_under_way(&self) -> bool {
        self.is_carried || self.repeat.is_active()
    }
}

/// The responder's last answer, kept to give the same again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answer<R> {
    pub epoch: u32,
    pub group: u8,
    pub refusal: Option<R>,
    pub repeat: Repeat,
    pub send: bool,
}

/// One end of the exchange of one direction. See the [module](super) for how to drive it.
///
/// Equality and hashing cover the whole state, so that a model checker can explore this very type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine<P, R> {
    pub(super) side: Side,
    pto: Duration,
    retire_after: Duration,
    tries_max: u8,
    /// Live epochs are less than this apart.
    span: u32,
    /// The highest number heard of: what is allotted next is above it.
    pub(super) highest: u32,
    /// The highest number decided here, by answering or by asking. A request that is not above it
    /// comes too late.
    pub(super) decided: u32,
    /// Receiver: the highest of them that was the sender's. What packets carry is new above it
    ///
    pub(super) heard: u32,
    /// Sender: the epoch in use for each group. Receiver: the highest epoch that the sender is
    /// known to use.
    pub(super) current: Using,
    /// Receiver: what it holds open. Sender: what it uses, and what it used of which packets may
    /// be under way.
    pub(super) open: OpenEpochs,
    pub(super) asking: Option<Box<Asking<P>>>,
    pub(super) answer: Option<Box<Answer<R>>>,
    /// The last of our requests that was accepted, whose Confirm is repeated on each repeated Ack.
    completed: Option<u32>,
    pub(super) send_confirm: bool,
    send_stale: Option<u32>,
    pub(super) events: VecDeque<Event<P, R>>,
}

impl<P: Clone + Eq, R: Clone> Machine<P, R> {
    /// A machine for the direction whose establishment agreed on `first_epoch` for group 0.
    /// The probe time-out is 1 s until [`set_pto`](Self::set_pto).
    pub fn new(side: Side, first_epoch: u32) -> Self {
        let mut current = [None; GROUPS_MAX];
        current[0] = Some(first_epoch);
        let mut open = OpenEpochs::default();
        open.open(first_epoch, 0);
        let pto = Duration::from_secs(1);
        Machine {
            side,
            pto,
            retire_after: pto * RETIRE_PTOS,
            tries_max: TRIES_MAX,
            span: EPOCH_SPAN,
            highest: first_epoch,
            decided: first_epoch,
            heard: first_epoch,
            current,
            open,
            asking: None,
            answer: None,
            completed: None,
            send_confirm: false,
            send_stale: None,
            events: VecDeque::new(),
        }
    }

    /// The same machine with another bound than [`TRIES_MAX`] on how often it sends a message (at
    /// least once).
    pub fn with_tries_max(mut self, tries_max: u8) -> Self {
        self.tries_max = tries_max.max(1);
        self
    }

    /// The same machine with another span than [`EPOCH_SPAN`], a multiple of four.
    pub fn with_span(mut self, span: u32) -> Self {
        self.span = span;
        self
    }

    /// Sets the probe time-out: how long to wait for the first answer. Applies to timers set from
    /// now on.
    pub fn set_pto(&mut self, pto: Duration) {
        self.pto = pto;
        self.retire_after = pto.saturating_mul(RETIRE_PTOS);
    }

    /// Sets how long a replaced epoch stays open, in place of [`RETIRE_PTOS`] probe time-outs.
    pub fn set_retire_after(&mut self, retire_after: Duration) {
        self.retire_after = retire_after;
    }

    /// True if no exchange is under way: nothing is being repeated. A request in doubt is not
    /// under way.
    pub fn is_idle(&self) -> bool {
        !self.asking.as_ref().is_some_and(|asking| asking.is_under_way()) && !self.awaits_confirm()
    }

    /// The epoch in use for `group`, as far as this end knows.
    pub fn current(&self, group: u8) -> Option<u32> {
        self.current.get(usize::from(group)).copied().flatten()
    }

    /// The number of our request that is not answered yet, or in doubt.
    pub fn asked(&self) -> Option<u32> {
        self.asking.as_ref().map(|asking| asking.epoch)
    }

    /// The number of our request that no answer came to, though it was given up.
    pub fn in_doubt(&self) -> Option<u32> {
        self.asking.as_ref().filter(|asking| !asking.is_under_way()).map(|asking| asking.epoch)
    }

    /// Asks the peer to change `group` to `profile`; returns the epoch. The receiver's machine has
    /// then emitted [`Event::Open`].
    ///
    /// Asking again for what is in doubt continues under the same number.
    pub fn request(&mut self, now: Time, group: u8, profile: P) -> Result<u32, Busy> {
        self.ask(now, group, profile, self.span_soft())
    }

    /// Asks the peer to go on with the profile of a group, under a new number. It may where
    /// [`request`](Self::request) says that the group's epoch is too old.
    pub fn renew(&mut self, now: Time, group: u8, profile: P) -> Result<u32, Busy> {
        self.ask(now, group, profile, self.span)
    }

    /// Beyond this span only the group of the oldest epoch may be renewed, to keep this always
    /// possible.
    fn span_soft(&self) -> u32 {
        self.span / 4 * 3
    }

    /// Asks under a number that is less than `span` above the oldest live epoch, if that is one of
    /// this group.
    fn ask(&mut self, now: Time, group: u8, profile: P, span: u32) -> Result<u32, Busy> {
        if usize::from(group) >= GROUPS_MAX {
            return Err(Busy::NoSuchGroup { group });
        }
        if !self.is_idle() || self.events.len() >= EVENTS_MAX {
            return Err(Busy::Underway);
        }
        if self.side == Side::DataSender {
            // of these nothing is under way any more.
            while self.open.close_due(now).is_some() {}
        }
        let allotted = self.allot(group, span);
        if let Some(asking) = &mut self.asking {
            let same = asking.group == group && asking.profile == profile;
            // the receiver cannot know whether the sender uses what is in doubt. It asks
            // until it knows. So does a sender whose numbers reach too far: the peer may have heard
            // of none of them.
            let must_know = self.side == Side::DataReceiver || allotted == Err(Busy::Span { group });
            if same || must_know {
                asking.repeat = Repeat::start(now, self.pto);
                asking.send = true;
                if same {
                    asking.since = now;
                    return Ok(asking.epoch);
                }
                return Err(Busy::InDoubt { epoch: asking.epoch });
            }
        }
        let epoch = allotted?;
        self.highest = epoch;
        self.decided = epoch;
        let using = match self.side {
            Side::DataSender => self.current,
            Side::DataReceiver => {
                // before the request leaves, because the sender may use the epoch as soon as
                // it accepts.
                self.open.open(epoch, group);
                self.events.push_back(Event::Open { epoch, group, profile: profile.clone() });
                [None; GROUPS_MAX]
            }
        };
        let repeat = Repeat::start(now, self.pto);
        let (since, send, is_carried) = (now, true, false);
        let asking = Asking { epoch, group, profile, using, since, repeat, send, is_carried };
        self.asking = Some(Box::new(asking));
        Ok(epoch)
    }

    /// Takes a message from the peer. `accept` is asked at most once, and only for a request that
    /// was not decided before.
    ///
    /// Late, repeated and nonsensical messages change nothing.
    pub fn handle(
        &mut self,
        now: Time,
        message: Message<P, R>,
        accept: impl FnOnce(u8, &P) -> Result<(), R>,
    ) {
        if self.events.len() >= EVENTS_MAX {
            return;
        }
        match message {
            Message::Request { epoch, group, using, profile } => {
                self.on_request(now, epoch, group, using, profile, accept);
            }
            Message::Ack { epoch } => self.on_ack(now, epoch),
            Message::Nak { epoch, refusal } => self.on_nak(epoch, refusal),
            Message::Confirm { epoch } => self.confirm(now, epoch),
            Message::Stale { epoch, highest } => self.on_stale(epoch, highest),
        }
    }

    /// Receiver: a packet of `epoch` arrived and was authenticated. It shows that the sender uses
    /// the epoch, and counts as Ack or as Confirm. Epochs that are not open are ignored.
    pub fn on_packet(&mut self, now: Time, epoch: u32) {
        if self.events.len() >= EVENTS_MAX {
            return;
        }
        let Some(group) = self.open.group_of(epoch) else { return };
        if self.current(group).is_some_and(|current| current > epoch) {
            return;
        }
        if self.asking.as_ref().is_some_and(|asking| asking.epoch == epoch) {
            self.on_ack(now, epoch);
        } else {
            self.in_use(now, group, epoch);
        }
    }

    /// Repeats and retires what is due. Call at or after [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Time) {
        if self.events.len() >= EVENTS_MAX {
            return;
        }
        if let Some(asking) = &mut self.asking {
            match asking.repeat.fire(now, self.pto, self.tries_max) {
                Due::No => {}
                Due::Send => asking.send = true,
                // an epoch that the receiver opened stays open. An epoch that the sender was
                // asked to use may be in use.
                Due::GiveUp => {
                    asking.send = false;
                    self.events.push_back(Event::Failed { epoch: asking.epoch, group: asking.group });
                }
            }
        }
        if let Some(answer) = &mut self.answer {
            match answer.repeat.fire(now, self.pto, self.tries_max) {
                Due::No => {}
                Due::Send => answer.send = true,
                // the epoch stays open, or in use. Repeated requests still get the answer.
                Due::GiveUp => answer.send = false,
            }
        }
        while self.side == Side::DataReceiver
            && let Some(epoch) = self.open.close_due(now)
        {
            self.events.push_back(Event::Retire { epoch });
        }
    }

    /// A message of this end was certainly lost. Unanswered messages are sent again at once. The
    /// timer goes on beside that, and ends the repetition as before.
    pub fn handle_lost(&mut self) {
        if let Some(asking) = &mut self.asking {
            asking.send |= asking.repeat.is_active();
        }
        if let Some(answer) = &mut self.answer {
            answer.send |= answer.repeat.is_active();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let asking = self.asking.as_ref().and_then(|asking| asking.repeat.at);
        let answer = self.answer.as_ref().and_then(|answer| answer.repeat.at);
        // The sender looks when it asks.
        let retirement = self.open.next_retirement().filter(|_| self.side == Side::DataReceiver);
        [asking, answer, retirement].into_iter().flatten().min()
    }

    /// The next message to send; the newest state of each, so that at most four wait.
    pub fn poll_message(&mut self) -> Option<Message<P, R>> {
        if core::mem::take(&mut self.send_confirm)
            && let Some(epoch) = self.completed
        {
            return Some(Message::Confirm { epoch });
        }
        if let Some(answer) = &mut self.answer
            && core::mem::take(&mut answer.send)
        {
            let epoch = answer.epoch;
            return Some(match answer.refusal.clone() {
                None => Message::Ack { epoch },
                Some(refusal) => Message::Nak { epoch, refusal },
            });
        }
        if let Some(epoch) = self.send_stale.take() {
            return Some(Message::Stale { epoch, highest: self.highest });
        }
        if let Some(asking) = &mut self.asking
            && core::mem::take(&mut asking.send)
        {
            let &mut Asking { epoch, group, using, .. } = &mut **asking;
            return Some(Message::Request { epoch, group, using, profile: asking.profile.clone() });
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event<P, R>> {
        self.events.pop_front()
    }

    fn awaits_confirm(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.repeat.is_active())
    }

    /// The next number of our parity, if the span of live epochs allows it.
    fn allot(&self, group: u8, span: u32) -> Result<u32, Busy> {
        // from the same `highest` the sender's number is above the receiver's.
        let (step, parity) = match self.side {
            Side::DataSender => (2, 0),
            Side::DataReceiver => (1, 1),
        };
        let epoch = self.highest.checked_add(step).ok_or(Busy::Exhausted)?;
        let epoch =
            if epoch % 2 == parity { Some(epoch) } else { epoch.checked_add(1) }.ok_or(Busy::Exhausted)?;
        if let Some((oldest, of)) = self.oldest_live() {
            let span = if of == group { span } else { self.span_soft() };
            if epoch - oldest >= span {
                return Err(Busy::Span { group: of });
            }
        }
        // the number says to the receiver what it need not hold open any more.
        match self.open.oldest() {
            Some((oldest, _)) if epoch - oldest >= self.span => Err(Busy::UnderWay { epoch: oldest }),
            _ => Ok(epoch),
        }
    }

    /// The oldest epoch in use (sender) or open (receiver), and its group.
    fn oldest_live(&self) -> Option<(u32, u8)> {
        match self.side {
            Side::DataReceiver => self.open.oldest(),
            Side::DataSender => {
                (0u8..).zip(self.current).filter_map(|(group, epoch)| Some((epoch?, group))).min()
            }
        }
    }

    fn peer_parity(&self) -> u32 {
        match self.side {
            Side::DataSender => 1,
            Side::DataReceiver => 0,
        }
    }

    /// whether a request of the peer could have this number and group.
    pub(super) fn is_sane(&self, epoch: u32, group: u8) -> bool {
        usize::from(group) < GROUPS_MAX
            && epoch % 2 == self.peer_parity()
            && epoch.saturating_sub(self.highest) < self.span
    }

    fn on_request(
        &mut self,
        now: Time,
        epoch: u32,
        group: u8,
        using: Using,
        profile: P,
        accept: impl FnOnce(u8, &P) -> Result<(), R>,
    ) {
        if !self.is_sane(epoch, group) {
            return;
        }
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.epoch == epoch) {
            answer.send = true;
            return;
        }
        if epoch <= self.decided {
            self.send_stale = Some(epoch);
            return;
        }
        match self.side {
            // as if lost, until what packets carry is answered.
            Side::DataSender if self.asking.as_ref().is_some_and(|asking| asking.is_carried) => return,
            // the higher number wins.
            Side::DataSender => self.withdraw(epoch),
            Side::DataReceiver => {
                if !self.learn_using(now, epoch, &using) {
                    return;
                }
                self.heard = epoch;
            }
        }
        self.highest = self.highest.max(epoch);
        self.decided = epoch;
        let refusal = accept(group, &profile).err();
        let repeat = if refusal.is_some() { Repeat::stopped() } else { Repeat::start(now, self.pto) };
        if refusal.is_none() {
            self.adopt(now, epoch, group, profile);
        }
        self.answer = Some(Box::new(Answer { epoch, group, refusal, repeat, send: true }));
    }

    /// The responder puts into effect what it accepted.
    fn adopt(&mut self, now: Time, epoch: u32, group: u8, profile: P) {
        match self.side {
            Side::DataSender => self.put_to_use(now, group, epoch, profile),
            Side::DataReceiver => self.open_for(group, epoch, profile),
        }
    }

    /// the sender's request says what it uses. Having sent it, the sender uses nothing else
    /// below `epoch`, and nothing is under way of what is a span below it. Returns false,
    /// and changes nothing, if this contradicts what is known.
    pub(super) fn learn_using(&mut self, now: Time, epoch: u32, using: &Using) -> bool {
        let span = self.span;
        let contradicts = (0u8..).zip(using).any(|(group, &used)| match used {
            None => self.current(group).is_some(),
            Some(used) => {
                used >= epoch
                    || epoch - used >= span
                    || self.current(group).is_some_and(|current| used < current)
                    || self.open.group_of(used) != Some(group)
            }
        });
        if contradicts {
            return false;
        }
        for (group, used) in (0u8..).zip(using) {
            let Some(used) = *used else { continue };
            if self.asking.as_ref().is_some_and(|asking| asking.epoch == used) {
                self.complete(now);
            }
            self.in_use(now, group, used);
        }
        self.withdraw(epoch);
        for (group, used) in (0u8..).zip(using) {
            while let Some(closed) = self.open.close_between(group, *used, epoch) {
                self.events.push_back(Event::Retire { epoch: closed });
            }
        }
        while let Some(closed) = self.open.close_far_below(epoch, span) {
            self.events.push_back(Event::Retire { epoch: closed });
        }
        true
    }

    /// Gives up our own request if its number is below this. If the request is in doubt, its owner
    /// already knows.
    fn withdraw(&mut self, below: u32) {
        let asking = self.asking.take_if(|asking| asking.epoch < below);
        if let Some(Asking { epoch, group, profile, repeat, .. }) = asking.map(|asking| *asking)
            && repeat.is_active()
        {
            self.events.push_back(Event::Withdrawn { epoch, group, profile });
        }
    }

    fn on_ack(&mut self, now: Time, epoch: u32) {
        if self.completed == Some(epoch) {
            self.send_confirm = true;
        } else if self.asking.as_ref().is_some_and(|asking| asking.epoch == epoch) {
            self.complete(now);
            self.send_confirm = true;
        }
    }

    /// The peer accepted what we asked for.
    pub(super) fn complete(&mut self, now: Time) {
        let Some(asking) = self.asking.take() else { return };
        let Asking { epoch, group, profile, since, is_carried, .. } = *asking;
        self.completed = Some(epoch);
        match self.side {
            // it is in use already.
            Side::DataSender if is_carried => self.retire_below(now, group, epoch),
            Side::DataSender => self.put_to_use(now, group, epoch, profile),
            Side::DataReceiver => self.in_use(now, group, epoch),
        }
        self.events.push_back(Event::Accepted { epoch, group, took: now.since(since) });
    }

    fn on_nak(&mut self, epoch: u32, refusal: R) {
        let Some(asking) = self.asking.take_if(|asking| asking.epoch == epoch) else { return };
        self.go_back(&asking);
        self.events.push_back(Event::Refused { epoch, group: asking.group, refusal });
        self.close(epoch);
    }

    fn on_stale(&mut self, epoch: u32, highest: u32) {
        // No receiver says so of what packets carry.
        if self.asking.as_ref().is_none_or(|asking| asking.epoch != epoch || asking.is_carried)
            || highest.saturating_sub(self.highest) >= self.span
        {
            return;
        }
        self.highest = self.highest.max(highest);
        self.withdraw(epoch.saturating_add(1));
        self.close(epoch);
    }

    /// An epoch that the sender will never use, or use again, is closed.
    fn close(&mut self, epoch: u32) {
        if self.open.close(epoch) && self.side == Side::DataReceiver {
            self.events.push_back(Event::Retire { epoch });
        }
    }

    /// The responder learns that its Ack arrived.
    fn confirm(&mut self, now: Time, epoch: u32) {
        let Some(answer) = &mut self.answer else { return };
        if answer.epoch != epoch || answer.refusal.is_some() {
            return;
        }
        answer.repeat = Repeat::stopped();
        answer.send = false;
        let group = answer.group;
        if self.side == Side::DataReceiver && self.open.group_of(epoch).is_some() {
            self.in_use(now, group, epoch);
        }
    }

    /// Receiver: the sender uses `epoch`, and never again a lower one of the group.
    fn in_use(&mut self, now: Time, group: u8, epoch: u32) {
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.epoch == epoch) {
            answer.repeat = Repeat::stopped();
            answer.send = false;
        }
        self.set_current(group, epoch);
        self.retire_below(now, group, epoch);
    }

    /// packets of the group's epochs below may be under way for a while.
    fn retire_below(&mut self, now: Time, group: u8, epoch: u32) {
        self.open.retire_below(group, epoch, now + self.retire_after);
    }

    /// The sender builds packets under the epoch from now on.
    fn put_to_use(&mut self, now: Time, group: u8, epoch: u32, profile: P) {
        self.set_current(group, epoch);
        self.open.open(epoch, group);
        self.retire_below(now, group, epoch);
        // the receiver has closed those before it asked for this one.
        while self.open.close_far_below(epoch, self.span).is_some() {}
        self.events.push_back(Event::Use { epoch, group, profile });
    }

    /// The receiver reads packets of the epoch from now on.
    pub(super) fn open_for(&mut self, group: u8, epoch: u32, profile: P) {
        self.open.open(epoch, group);
        self.events.push_back(Event::Open { epoch, group, profile });
    }

    pub(super) fn set_current(&mut self, group: u8, epoch: u32) {
        if let Some(current) = self.current.get_mut(usize::from(group)) {
            *current = Some(current.map_or(epoch, |old| old.max(epoch)));
        }
    }
}
