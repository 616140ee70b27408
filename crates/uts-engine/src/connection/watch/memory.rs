//! Memory of a connection, by part.

use crate::connection::agreement::adapt::Adaptation;
use crate::connection::stage::{Core, Fresh, Open, Stage};
use crate::connection::{Connection, Handshake, Ways};
use crate::event::Event;
use crate::synthesis::{ReceiveStack, SendStack};
use std::sync::Arc;
use uts_functions::{Profile, protection};

impl<S: Stage> Core<S> {
    /// Bytes of the handshake, as long as it is kept.
    fn handshake_bytes(&self) -> usize {
        self.establishing.handshake.as_ref().map_or(0, |_| size_of::<Handshake>())
    }

    /// Bytes of events that wait to be read, and of packets that wait for their keys.
    fn waiting_bytes(&self) -> usize {
        self.ways.events.capacity() * size_of::<Event>()
            + self.establishing.handshake.as_ref().map_or(0, |handshake| {
                handshake.ahead.iter().map(|(_, packet)| packet.capacity()).sum::<usize>()
                    + handshake.early_bytes()
            })
    }
}

impl Fresh {
    pub(in crate::connection) fn memory_parts(&self) -> [(&'static str, usize); 10] {
        [
            ("connection", size_of::<Connection>()),
            ("handshake", self.handshake_bytes()),
            ("certificates", 0),
            ("keys", 0),
            ("epochs", 0),
            ("policy", 0),
            ("flows", 0),
            ("packets", 0),
            ("ids", 0),
            ("waiting", self.waiting_bytes()),
        ]
    }
}

impl Open {
    pub(in crate::connection) fn memory_parts(&self) -> [(&'static str, usize); 10] {
        let Ways { outbound, inbound, flows, .. } = &self.ways;
        let keys = |is_there: bool| usize::from(is_there) * size_of::<protection::Slot>();
        let out_keys: usize = outbound.stacks.iter().map(|s| keys(s.protection.is_some())).sum();
        let in_keys: usize = inbound.stacks.iter().map(|s| keys(s.protection.is_some())).sum();
        let is_own = |certificates: &&Arc<[_]>| Arc::strong_count(certificates) == 1;
        let certificates =
            self.establishing.peer_certificates.iter().filter(is_own).flat_map(|all| all.iter());
        let adaptation = self.agreement.adaptation.as_ref();
        let envelope = outbound.envelope.as_ref().map_or(0, |e| size_of_val(&**e) + e.heap_bytes());
        let packets_out = outbound.ledger.heap_bytes() + outbound.meter.heap_bytes() + envelope;
        let packets_in = inbound.arrivals.received.heap_bytes()
            + inbound.arrivals.repaired.heap_bytes()
            + inbound.clock.as_ref().map_or(0, |clock| size_of_val(&**clock));
        [
            ("connection", size_of::<Connection>()),
            ("handshake", self.handshake_bytes()),
            ("certificates", certificates.map(|c| size_of_val(c) + c.len()).sum()),
            ("keys", out_keys + in_keys),
            ("epochs", self.epoch_bytes() + self.parts.exchanges.heap_bytes()),
            ("policy", adaptation.map_or(0, |a| size_of::<Adaptation>() + a.heap_bytes())),
            ("flows", flows.heap_bytes() + self.agreement.groups.heap_bytes()),
            ("packets", packets_out + packets_in),
            ("ids", self.parts.ids.heap_bytes()),
            ("waiting", self.waiting_bytes()),
        ]
    }

    /// Stacks, and the profiles that only this connection has: most have what others have, and
    /// share it.
    fn epoch_bytes(&self) -> usize {
        let Ways { outbound, inbound, .. } = &self.ways;
        let stacks = outbound.stacks.capacity() * size_of::<SendStack>()
            + inbound.stacks.capacity() * size_of::<ReceiveStack>();
        let out = outbound.stacks.iter().map(|s| &s.profile);
        let profiles: Vec<&Arc<Profile>> =
            out.chain(inbound.stacks.iter().map(|s| &s.profile)).chain(&self.agreement.home).collect();
        let copies = |of: &Arc<Profile>| profiles.iter().filter(|p| Arc::ptr_eq(p, of)).count();
        let is_first = |at: usize| profiles[..at].iter().all(|p| !Arc::ptr_eq(p, profiles[at]));
        let own = (0..profiles.len())
            .filter(|at| is_first(*at) && Arc::strong_count(profiles[*at]) == copies(profiles[*at]));
        stacks + own.count() * (size_of::<Profile>() + 2 * size_of::<usize>())
    }
}
