//! Application that sends and receives at an address of a network.

use crate::cost::MechanismCost;
use crate::packet::{Datagram, Packet};
use core::time::Duration;
use uts_functions::Time;

/// An application of a host. As with the engine: mutate, then drain. After
/// [`Application::handle_datagram`], [`Application::handle_timeout`] and anything that is done
/// through [`Network::app_mut`](super::Network::app_mut), the network drains
/// [`Application::poll_transmit`] and then asks [`Application::poll_timeout`].
pub trait Application {
    /// A datagram has arrived.
    fn handle_datagram(&mut self, now: Time, packet: Packet);

    /// Does what is due.
    fn handle_timeout(&mut self, now: Time);

    /// The next datagram to send, if there is one.
    fn poll_transmit(&mut self, now: Time) -> Option<Datagram>;

    /// When to call [`Application::handle_timeout`] next.
    fn poll_timeout(&mut self) -> Option<Time>;

    /// True if nodes may fragment what it sends. If not, a packet that is too long for a path is
    /// lost there, as packets are that say "don't fragment".
    fn may_fragment(&self) -> bool {
        false
    }

    /// Time that its mechanisms add to the work of a packet that it has sent last, or is to receive
    /// next, at these costs.
    fn mechanism_work(
        &self,
        costs: &[MechanismCost],
        direction: uts_engine::Direction,
        packet: &Packet,
    ) -> Duration {
        let _ = (costs, direction, packet);
        Duration::ZERO
    }
}

impl<A: Application + ?Sized> Application for Box<A> {
    fn handle_datagram(&mut self, now: Time, packet: Packet) {
        (**self).handle_datagram(now, packet)
    }

    fn handle_timeout(&mut self, now: Time) {
        (**self).handle_timeout(now)
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        (**self).poll_transmit(now)
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        (**self).poll_timeout()
    }

    fn may_fragment(&self) -> bool {
        (**self).may_fragment()
    }

    fn mechanism_work(
        &self,
        costs: &[MechanismCost],
        direction: uts_engine::Direction,
        packet: &Packet,
    ) -> Duration {
        (**self).mechanism_work(costs, direction, packet)
    }
}
