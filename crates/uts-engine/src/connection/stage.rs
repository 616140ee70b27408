//! Stages of a connection, as types: what it has until it is established, and what it has then.
//!
//! A method that needs keys or flows is one of [`Open`], and a connection is looked at once, at its
//! [`door`](super::door). What both stages have in common, the handshake above all, is generic over
//! the [`Stage`].

use super::agreement::Agreement;
use super::establish::Establishing;
use super::flows::Flows;
use super::identity::Identity;
use super::life::Life;
use super::migration::Migration;
use super::parts::{PacketSize, Parts};
use super::receive::inbound::Inbound;
use super::send::outbound::Outbound;
use super::ways::{Reserved, Ways};
use core::time::Duration;
use uts_functions::Time;

/// A stage: the types of what a connection has in it, and how it ends.
pub(super) trait Stage: Sized {
    /// The way out.
    type Outbound;
    /// The way in.
    type Inbound;
    /// Flows, or what they will be made of.
    type Flows;
    /// Parts that have frames of their own.
    type Parts;
    /// State of what the ends agree on.
    type Agreement;
    /// State of an end's move.
    type Migration;

    /// The probe time-out, if there is one.
    fn probe_timeout(core: &Core<Self>) -> Option<Duration>;

    /// Packets that may turn out to be forged.
    fn forgeries_max(core: &Core<Self>) -> u64;

    /// Appends a datagram that tells the peer that the connection has ended; says its bytes.
    fn write_close(core: &mut Core<Self>, now: Time, out: &mut Vec<u8>) -> Option<usize>;
}

/// Stage in which the ends greet each other.
pub(super) enum Handshaking {}

/// Stage in which both ends are known and have keys.
pub(super) enum Established {}

impl Stage for Handshaking {
    type Outbound = ();
    type Inbound = ();
    type Flows = Reserved;
    type Parts = ();
    type Agreement = ();
    type Migration = ();

    fn probe_timeout(_core: &Fresh) -> Option<Duration> {
        None
    }

    fn forgeries_max(_core: &Fresh) -> u64 {
        u64::MAX
    }

    fn write_close(core: &mut Fresh, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        core.write_handshake(now, out)
    }
}

impl Stage for Established {
    type Outbound = Outbound;
    type Inbound = Inbound;
    type Flows = Flows;
    type Parts = Parts;
    type Agreement = Agreement;
    type Migration = Migration;

    fn probe_timeout(core: &Open) -> Option<Duration> {
        Some(core.ways.outbound.probe_timeout())
    }

    fn forgeries_max(core: &Open) -> u64 {
        core.forgeries_max()
    }

    fn write_close(core: &mut Open, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        core.write_close(now, out)
    }
}

/// A connection in one of its stages.
pub(super) struct Core<S: Stage> {
    pub identity: Identity,
    pub life: Life,
    pub establishing: Establishing,
    pub migration: S::Migration,
    pub ways: Ways<S>,
    pub agreement: S::Agreement,
    pub parts: S::Parts,
}

/// A connection that is not established yet; it may have failed.
pub(super) type Fresh = Core<Handshaking>;

/// A connection that is established; it may be closed since.
pub(super) type Open = Core<Established>;

impl Fresh {
    /// The connection as it is once it is established. It takes over what this one has.
    pub fn opened(
        &mut self,
        (outbound, inbound): (Outbound, Inbound),
        size: PacketSize,
        agreement: Agreement,
    ) -> Open {
        Core {
            identity: self.identity.clone(),
            life: self.life.clone(),
            establishing: self.establishing.hand_over(),
            migration: Migration::default(),
            ways: self.ways.opened(self.identity.side, outbound, inbound),
            agreement,
            parts: Parts::new(size),
        }
    }
}
