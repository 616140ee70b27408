//! Memory of a connection, by part.

use crate::connection::agreement::adapt::Adaptation;
use crate::connection::{Connection, Handshake};
use crate::event::Event;
use crate::synthesis::{ReceiveStack, SendStack};
use std::sync::Arc;
use uts_functions::{Profile, protection};

impl Connection {
    /// Bytes of memory that the connection takes, its data and the TLS library's state left out.
    /// The latter is gone once the handshake is confirmed.
    pub fn memory_bytes(&self) -> usize {
        self.memory_parts().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// The same, by part.
    pub fn memory_parts(&self) -> [(&'static str, usize); 10] {
        let (outbound, inbound) = (self.ways.outbound.as_ref(), self.ways.inbound.as_ref());
        let keys = |is_there: bool| usize::from(is_there) * size_of::<protection::Slot>();
        let out_keys: usize =
            outbound.map_or(0, |o| o.stacks.iter().map(|s| keys(s.protection.is_some())).sum());
        let in_keys: usize =
            inbound.map_or(0, |i| i.stacks.iter().map(|s| keys(s.protection.is_some())).sum());
        let is_own = |certificates: &&Arc<[_]>| Arc::strong_count(certificates) == 1;
        let certificates =
            self.establishing.peer_certificates.iter().filter(is_own).flat_map(|all| all.iter());
        let waiting = self.ways.events.capacity() * size_of::<Event>()
            + self.establishing.handshake.as_ref().map_or(0, |handshake| {
                handshake.ahead.iter().map(|(_, packet)| packet.capacity()).sum::<usize>()
                    + handshake.early_bytes()
            });
        [
            ("connection", size_of::<Connection>()),
            ("handshake", self.establishing.handshake.as_ref().map_or(0, |_| size_of::<Handshake>())),
            ("certificates", certificates.map(|c| size_of_val(c) + c.len()).sum()),
            ("keys", out_keys + in_keys),
            ("epochs", self.epoch_bytes() + self.parts.exchanges.heap_bytes()),
            (
                "policy",
                self.agreement.adaptation.as_ref().map_or(0, |a| size_of::<Adaptation>() + a.heap_bytes()),
            ),
            ("flows", self.ways.flows.heap_bytes() + self.agreement.groups.heap_bytes()),
            (
                "packets",
                outbound.map_or(0, |o| {
                    let envelope = o.envelope.as_ref().map_or(0, |e| size_of_val(&**e) + e.heap_bytes());
                    o.ledger.heap_bytes() + o.meter.heap_bytes() + envelope
                }) + inbound.map_or(0, |i| {
                    i.arrivals.received.heap_bytes()
                        + i.arrivals.repaired.heap_bytes()
                        + i.clock.as_ref().map_or(0, |clock| size_of_val(&**clock))
                }),
            ),
            ("ids", self.parts.ids.heap_bytes()),
            ("waiting", waiting),
        ]
    }

    /// Bytes of memory that flows take: what was received and not read, what was written and not
    /// acknowledged, and what it takes to keep track of both. It is bounded by
    /// [`ConnectionConfig::memory_bytes_max`](crate::ConnectionConfig::memory_bytes_max) and
    /// [`EndpointConfig::memory_bytes_max`](crate::EndpointConfig::memory_bytes_max).
    pub fn held_bytes(&self) -> usize {
        self.ways.flows.incoming.charge() + self.ways.flows.outgoing.held()
    }

    /// Stacks, and the profiles that only this connection has: most have what others have, and
    /// share it.
    fn epoch_bytes(&self) -> usize {
        let (outbound, inbound) = (self.ways.outbound.as_ref(), self.ways.inbound.as_ref());
        let stacks = outbound.map_or(0, |o| o.stacks.capacity() * size_of::<SendStack>())
            + inbound.map_or(0, |i| i.stacks.capacity() * size_of::<ReceiveStack>());
        let profiles: Vec<&Arc<Profile>> = outbound
            .into_iter()
            .flat_map(|o| o.stacks.iter().map(|s| &s.profile))
            .chain(inbound.into_iter().flat_map(|i| i.stacks.iter().map(|s| &s.profile)))
            .chain(&self.agreement.home)
            .collect();
        let copies = |of: &Arc<Profile>| profiles.iter().filter(|p| Arc::ptr_eq(p, of)).count();
        let is_first = |at: usize| profiles[..at].iter().all(|p| !Arc::ptr_eq(p, profiles[at]));
        let own = (0..profiles.len())
            .filter(|at| is_first(*at) && Arc::strong_count(profiles[*at]) == copies(profiles[*at]));
        stacks + own.count() * (size_of::<Profile>() + 2 * size_of::<usize>())
    }
}
