//! Nodes whose work takes time, as part of a network.

use super::{AppId, Application, Network};
use crate::cost::{CostError, Costs, HostCounters, Machine, MechanismCost, Output, Work};
use crate::packet::Packet;
use crate::topology::Node;
use core::time::Duration;
use uts_engine::Direction;

impl<A: Application> Network<A> {
    /// Gives a node's work costs, from now on; see [`crate::cost`]. What waited in a node with
    /// other costs is lost.
    ///
    /// # Errors
    /// A cost is out of range; then nothing is changed.
    pub fn set_costs(&mut self, node: Node, costs: Costs) -> Result<(), CostError> {
        costs.check()?;
        if self.machines.len() <= node.index() {
            self.machines.resize_with(node.index() + 1, || None);
        }
        self.machines[node.index()] = Some(Box::new(Machine::new(costs)));
        Ok(())
    }

    /// Counters of a node with costs.
    pub fn host_counters(&self, node: Node) -> HostCounters {
        let machine = self.machines.get(node.index()).and_then(Option::as_ref);
        machine.map(|machine| machine.counters()).unwrap_or_default()
    }

    /// Remembers what a node with costs does, for [`Network::take_work`].
    pub fn record_work(&mut self, node: Node) {
        if let Some(machine) = self.machine(node) {
            machine.record_work();
        }
    }

    /// Work of a node with costs since this was last asked, in the order of its ends.
    pub fn take_work(&mut self, node: Node) -> Vec<Work> {
        self.machine(node).map(Machine::take_work).unwrap_or_default()
    }

    pub(super) fn machine(&mut self, node: Node) -> Option<&mut Machine> {
        self.machines.get_mut(node.index())?.as_deref_mut()
    }

    /// True if the node of an application takes another datagram from it now. If not, the
    /// application is touched once it does.
    pub(super) fn takes_from(&mut self, id: AppId) -> bool {
        if self.machines.is_empty() {
            return true;
        }
        let node = self.apps[id.index()].node;
        let Some(machine) = self.machine(node) else { return true };
        let has_room = machine.has_room();
        if !has_room && !machine.held.contains(&id) {
            machine.held.push(id);
        }
        has_room
    }

    /// Gives a packet that an application has just sent to a node with costs.
    pub(super) fn hand_to_machine(&mut self, node: Node, id: AppId, packet: Packet) {
        let app = &self.apps[id.index()].app;
        let Some(machine) = self.machines.get_mut(node.index()).and_then(Option::as_deref_mut) else {
            return;
        };
        let added = match machine.mechanisms() {
            [] => Duration::ZERO,
            costs => app.mechanism_work(costs, Direction::Out, &packet),
        };
        machine.send(packet, added);
        self.work(node);
    }

    /// Has a node with costs do what is due.
    pub(super) fn work(&mut self, node: Node) {
        let now = self.now;
        loop {
            let (apps, by_address) = (&self.apps, &self.by_address);
            let added = |costs: &[MechanismCost], packet: &Packet| match by_address.get(&packet.to) {
                Some(id) => apps[id.index()].app.mechanism_work(costs, Direction::In, packet),
                None => Duration::ZERO,
            };
            let machine = self.machines.get_mut(node.index()).and_then(Option::as_deref_mut);
            let Some(output) = machine.and_then(|machine| machine.poll(now, &added)) else { break };
            match output {
                Output::Sent(packet) => self.forward(node, packet),
                Output::Received(packet) => self.hand_over(packet),
            }
        }
        let Some(machine) = self.machine(node) else { return };
        let next = machine.next();
        let held = if machine.has_room() { core::mem::take(&mut machine.held) } else { Vec::new() };
        held.into_iter().for_each(|id| self.touch(id));
        self.agenda.set((self.paths.len() + node.index()) as u32, next);
    }
}
