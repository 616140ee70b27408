//! Groups of flows that have requirements of their own: one profile for each, agreed by exchange as
//! any other.
//!
//! Flows with equal requirements share a group, and stay in it. Until its first profile is in use a
//! group waits: what is written to its flows is kept, and nothing of it is sent. What a
//! direction shares (acknowledgement, timing, rate, congestion, protection) is group 0's.
//! Groups do not adapt: their profile is chosen for the path as it is when they come to be
//! (selection.md S-36).

use crate::bug::bug;
use crate::config::ConnectionConfig;
use crate::connection::agreement::exchanges::{ExchangeError, Reasons};
use crate::connection::agreement::refusal::Refusal;
use crate::connection::stage::Open;
use crate::connection::{Event, FlowError};
use crate::event::{Direction, FlowId};
use crate::exchange::GROUPS_MAX;
use crate::requirements::{PROPERTIES, Pin, Requirements};
use crate::selector::{self, Library};
use crate::synthesis::DataLayout;
use bytes::Bytes;
use std::borrow::Cow;
use uts_functions::presentation::{self, Presentation};
use uts_functions::segmentation::{self, Segmentation};
use uts_functions::{Function, Profile, Time};

/// A group other than 0, as the sender of its data keeps it.
#[derive(Debug)]
pub(crate) struct Group {
    requirements: Requirements,
    /// Profile that the selector chose. Of the functions that the direction shares only the latest
    /// choice of group 0 counts.
    profile: Profile,
    /// It has been in use.
    is_agreed: bool,
    /// Something is to be asked for.
    is_wanting: bool,
    /// Mechanisms that the peer has, less those that it refused.
    usable: Library,
}

/// Groups 1 and up.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<Option<Box<Group>>>);

impl Groups {
    fn get_mut(&mut self, group: u8) -> Option<&mut Group> {
        self.0.get_mut(usize::from(group).checked_sub(1)?)?.as_deref_mut()
    }

    pub fn get(&self, group: u8) -> Option<&Group> {
        self.0.get(usize::from(group).checked_sub(1)?)?.as_deref()
    }

    /// Requirements of the data of a group's flows: its own, or the connection's.
    pub fn requirements_of<'a>(&'a self, group: u8, config: &'a ConnectionConfig) -> &'a Requirements {
        self.get(group).map_or(&config.requirements, |group| &group.requirements)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (u8, &mut Group)> {
        (1u8..).zip(&mut self.0).filter_map(|(number, group)| Some((number, group.as_deref_mut()?)))
    }

    /// Puts a group where `is_free` allows it; `None` if there is no room.
    fn insert(&mut self, group: Group, is_free: impl Fn(u8) -> bool) -> Option<u8> {
        let number = (1..GROUPS_MAX as u8).find(|number| self.get(*number).is_none() || is_free(*number))?;
        let at = usize::from(number) - 1;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(Box::new(group));
        Some(number)
    }

    pub fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Option<Box<Group>>>()
            + self.0.iter().flatten().count() * size_of::<Group>()
    }
}

/// Treatment of messages that are handed to a flow.
pub(in crate::connection) struct Forming {
    segmentation: segmentation::Slot,
    presentation: presentation::Slot,
    /// Messages with one key keep their order.
    pub is_keyed: bool,
    /// Messages say when they were made.
    pub is_timed: bool,
    /// Streams of bytes travel in a form of their own.
    lines: bool,
}

impl Forming {
    /// True if the ends of messages are kept.
    pub fn keeps_boundaries(&self) -> bool {
        self.segmentation.keeps_boundaries()
    }

    /// The largest message that may be sent, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.segmentation.message_bytes_max()
    }

    /// True if messages may travel in another form than they are handed over in.
    pub fn presents(&self) -> bool {
        !self.presentation.info().facts.inert
    }

    /// The message as its presentation mechanism has it, where that is not as it is
    /// (presentation.md R-1).
    pub fn present(&self, message: &[u8]) -> Option<Bytes> {
        match self.keeps_boundaries().then(|| self.presentation.present(message)) {
            Some(Cow::Owned(presented)) => Some(Bytes::from(presented)),
            _ => None,
        }
    }

    /// Bytes of a stream as the presentation mechanism has them, where that is not as they are.
    pub fn present_stream(&self, bytes: &[u8]) -> Option<Bytes> {
        match self.lines.then(|| self.presentation.present_stream(bytes)) {
            Some(Cow::Owned(presented)) => Some(Bytes::from(presented)),
            _ => None,
        }
    }
}

impl Open {
    /// The group of flows with these requirements; it is made if there is none.
    pub(in crate::connection) fn group_for(&mut self, requirements: &Requirements) -> Result<u8, FlowError> {
        let requirements = self.own_requirements(requirements)?;
        if let Some((number, _)) =
            self.agreement.groups.iter_mut().find(|(_, g)| g.requirements == requirements)
        {
            return Ok(number);
        }
        let usable = self.agreement.peer_library;
        let profile = self.select_for_group(&requirements, &usable)?;
        let group = Group { requirements, profile, is_agreed: false, is_wanting: true, usable };
        // A group without data to send may become another one: receivers read what they have under
        // either profile.
        let flows = &self.ways.flows;
        let is_free = |number| !flows.iter().any(|(_, f)| f.send.group == number && !f.send.is_done);
        self.agreement.groups.insert(group, is_free).ok_or(FlowError::TooManyGroups(GROUPS_MAX - 1))
    }

    /// A flow's requirements, with the connection's in what belongs to the connection.
    fn own_requirements(&self, requirements: &Requirements) -> Result<Requirements, FlowError> {
        let (default, connection) = (Requirements::default(), &self.ways.config.requirements);
        let mut own = requirements.clone();
        for property in PROPERTIES.iter().filter(|p| p.is_shared()) {
            let (asked, shared) = (property.value(requirements), property.value(connection));
            if asked != shared && asked != property.value(&default) {
                return Err(FlowError::Shared { asked: format!("{}={asked}", property.name), shared });
            }
            property.copy(connection, &mut own);
        }
        let profile = self.profile_of(Direction::Out, 0);
        if let Some(pin) =
            own.pins.iter().find(|p| p.function.is_shared() && p.choice != *profile.get(p.function))
        {
            let shared = profile.describe(pin.function);
            return Err(FlowError::Shared { asked: pin.to_string(), shared });
        }
        own.pins.retain(|p| !p.function.is_shared());
        Ok(own)
    }

    fn select_for_group(
        &self,
        requirements: &Requirements,
        usable: &Library,
    ) -> Result<Profile, selector::Contradiction> {
        let shared = self.profile_of(Direction::Out, 0);
        let mut pinned = requirements.clone();
        for &function in Function::ALL.iter().filter(|f| f.is_shared()) {
            pinned.pin(Pin { function, choice: *shared.get(function) });
        }
        let local = self.ways.config.library();
        Ok(selector::select(&pinned, &self.facts(), &local, Some(usable))?.profile)
    }

    /// Puts a flow on which nothing was written into a group.
    pub(in crate::connection) fn join_group(&mut self, id: FlowId, group: u8) {
        let is_agreed = self.agreement.groups.get(group).is_some_and(|g| g.is_agreed);
        if let Some(flow) = self.ways.flows.get_mut(id.0) {
            flow.send.group = group;
            flow.send.is_held = !is_agreed;
        }
        self.ways.begin_with_window(id.0);
        self.ways.after_send_change(id.0);
    }

    /// Requirements of a flow's data.
    pub(in crate::connection) fn requirements_of(&self, group: u8) -> &Requirements {
        self.agreement.groups.requirements_of(group, &self.ways.config)
    }

    /// Treatment of messages that are handed to a flow: under the profile in use, or under the
    /// profile that the flow waits for.
    pub(in crate::connection) fn forming(&self, flow: FlowId) -> Option<Forming> {
        let send = &self.ways.flows.get(flow.0)?.send;
        if send.is_held {
            let profile = &self.agreement.groups.get(send.group)?.profile;
            let segmentation = segmentation::Slot::build(profile.get(Function::Segmentation), ())?;
            let presentation = presentation::Slot::build(profile.get(Function::Presentation), ())?;
            let lines = DataLayout::of(profile).lines;
            let (is_keyed, is_timed) = (is_keyed(profile), DataLayout::of(profile).times);
            return Some(Forming { segmentation, presentation, is_keyed, is_timed, lines });
        }
        let stack = self.ways.outbound.stack(send.group)?;
        let (segmentation, presentation) = (stack.segmentation.clone(), stack.presentation.clone());
        let (is_keyed, is_timed, lines) = (is_keyed(&stack.profile), stack.layout.times, stack.layout.lines);
        Some(Forming { segmentation, presentation, is_keyed, is_timed, lines })
    }

    /// Asks for the profile of a group that wants one, if no other exchange is under way.
    pub(in crate::connection) fn pursue_groups(&mut self, now: Time) {
        if !self.parts.exchanges.is_idle(Direction::Out) {
            return;
        }
        let Some(number) =
            self.agreement.groups.iter_mut().find(|(_, g)| g.is_wanting).map(|(number, _)| number)
        else {
            return;
        };
        let wanted = self.wanted_by_group(number);
        let Some(group) = self.agreement.groups.get_mut(number) else {
            bug!("group {number} wants a profile and is gone");
            return;
        };
        let Some(profile) = wanted else {
            group.is_wanting = false;
            return;
        };
        let seen = if group.is_agreed {
            "what all flows share has changed".to_owned()
        } else {
            "flows with requirements of their own".to_owned()
        };
        let reasons = Reasons::new(seen, "the profile that the selector chose");
        match self.request_exchange(now, Direction::Out, number, profile, reasons) {
            Ok(_) | Err(ExchangeError::Busy(_)) => {}
            Err(error) if self.agreement.groups.get(number).is_some_and(|g| !g.is_agreed) => {
                self.refuse_group(number, &error.to_string());
            }
            // What is in use goes on.
            Err(_) => {
                if let Some(group) = self.agreement.groups.get_mut(number) {
                    group.is_wanting = false;
                }
            }
        }
    }

    /// The profile that a group should have and has not: its own choices, and group 0's of what is
    /// shared.
    pub(super) fn wanted_by_group(&self, number: u8) -> Option<Profile> {
        let group = self.agreement.groups.get(number)?;
        let shared = self.profile_of(Direction::Out, 0);
        let in_use = self.profile_of(Direction::Out, number);
        let mut profile = if group.is_agreed { in_use } else { group.profile };
        for &function in Function::ALL.iter().filter(|f| f.is_shared()) {
            profile.set(function, *shared.get(function));
        }
        if !group.is_agreed {
            return Some(profile);
        }
        // What is shared has a say in the rest: detection is for packets that nothing
        // authenticates.
        let select = || self.select_for_group(&group.requirements, &group.usable).unwrap_or(profile);
        differ(&in_use, &profile).then(select)
    }

    /// A profile of a group came into use.
    pub(in crate::connection) fn on_group_changed(&mut self, number: u8, profile: &Profile) {
        if number == 0 {
            // The others follow in what is shared.
            self.agreement.groups.iter_mut().for_each(|(_, group)| group.is_wanting = true);
            return;
        }
        let Some(group) = self.agreement.groups.get_mut(number) else { return };
        if group.is_agreed || !is_same_of_group(&group.profile, profile) {
            return;
        }
        group.is_agreed = true;
        let held: Vec<u32> =
            self.ways.flows.iter().filter(|(_, f)| f.send.group == number).map(|(id, _)| id).collect();
        for id in held {
            if let Some(flow) = self.ways.flows.get_mut(id) {
                flow.send.is_held = false;
            }
            self.ways.after_send_change(id);
        }
    }

    /// The peer refused a group's profile: the selector chooses another, without the mechanism that
    /// the peer objects to.
    pub(in crate::connection) fn on_group_refused(
        &mut self,
        number: u8,
        asked: Option<Profile>,
        refusal: &Refusal,
    ) {
        let Some(group) = self.agreement.groups.get_mut(number) else { return };
        if group.is_agreed {
            group.is_wanting = false;
            return;
        }
        // What was asked for may have been for flows that are gone.
        if asked.is_none_or(|asked| !is_same_of_group(&asked, &group.profile)) {
            return;
        }
        let function = refusal.function;
        let said =
            format!("the peer refused {}: {}", group.profile.describe(function), refusal.reason.words());
        group.usable.remove(function, group.profile.get(function).number);
        let Some(group) = self.agreement.groups.get(number) else { return };
        match self.select_for_group(&group.requirements, &group.usable) {
            Ok(profile) if !function.is_shared() => {
                if let Some(group) = self.agreement.groups.get_mut(number) {
                    group.profile = profile;
                }
            }
            Ok(_) => self.refuse_group(number, &said),
            Err(contradiction) => self.refuse_group(number, &format!("{said}; {contradiction}")),
        }
    }

    /// A group cannot have what its flows require: they are given up.
    fn refuse_group(&mut self, number: u8, why: &str) {
        if let Some(group) = self.agreement.groups.0.get_mut(usize::from(number) - 1) {
            *group = None;
        }
        let flows: Vec<u32> =
            self.ways.flows.iter().filter(|(_, f)| f.send.group == number).map(|(id, _)| id).collect();
        for id in flows {
            let Some(flow) = self.ways.flows.get_mut(id).filter(|f| !f.send.is_done) else { continue };
            flow.send.refused = Some(why.into());
            self.ways.events.push_back(Event::Refused(FlowId(id), why.to_owned()));
            self.ways.reset_flow(FlowId(id), 0);
        }
    }
}

/// True if two profiles agree in all functions that a group has for itself.
fn is_same_of_group(a: &Profile, b: &Profile) -> bool {
    a.differences(b).all(Function::is_shared)
}

/// True if packets under two profiles are protected or acknowledged differently. (Other shared
/// functions are not looked for in the profiles of groups other than 0.)
fn differ(a: &Profile, b: &Profile) -> bool {
    [Function::Protection, Function::Acknowledgement].into_iter().any(|f| a.get(f) != b.get(f))
}

/// True if messages with one key keep their order under a profile, and others do not.
fn is_keyed(profile: &Profile) -> bool {
    profile.mechanism(Function::Sequencing).is_some_and(|m| m.facts.keys)
}
