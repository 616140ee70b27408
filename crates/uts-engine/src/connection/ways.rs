//! State that the two ways share: epochs in use and open, flows, and what is told and counted of
//! both.

use super::agreement::numbers::Numbers;
use super::flows::tagged::FindMemory;
use super::marking::Marking;
use super::parts::Topic;
use super::receive::receive_rate::ReceiveRate;
use super::send::rate_hint::RateHint;
use super::stage::{Established, Handshaking, Stage};
use super::{Flows, Inbound, Outbound, Side, Stats, Trace};
use crate::config::ConnectionConfig;
use crate::endpoint::budget::Stores;
use crate::event::Event;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use uts_functions::Time;

/// State that few connections have.
#[derive(Default)]
pub(super) struct Rare {
    /// Numbers of mechanisms on the wire; `None`: those of the specification.
    pub numbers: Option<Box<Numbers>>,
    /// The application wants to know at which rate it may send.
    pub rate_hint: Option<RateHint>,
    /// The application may have memory for flows that the peer opens.
    pub finder: Option<Box<dyn FindMemory>>,
}

/// Settings and memory for flows that are to come: those of which the peer is told first.
pub(super) struct Reserved {
    config: Arc<ConnectionConfig>,
    stores: Stores,
}

/// The way out, the way in, and the flows of both, as far as a stage has them.
pub(super) struct Ways<S: Stage = Established> {
    /// Shared by all connections that were set up alike.
    pub config: Arc<ConnectionConfig>,
    pub outbound: S::Outbound,
    pub inbound: S::Inbound,
    pub flows: S::Flows,
    /// Topics on which mechanisms here speak to their halves at the sender of data.
    pub feedback: BTreeSet<Topic>,
    /// Where what is received is to keep a rate.
    pub receive_rate: Option<Box<ReceiveRate>>,
    /// State that few connections have. In a box, so that a connection at rest stays small.
    pub rare: Option<Box<Rare>>,
    /// Bytes that the application has handed over.
    pub bytes_written: u64,
    /// State of ECN marks: whether the path bears them.
    pub marking: Marking,
    pub stats: Stats,
    pub trace: Trace,
    pub events: VecDeque<Event>,
}

impl Ways<Handshaking> {
    pub fn new(config: Arc<ConnectionConfig>, stores: Stores) -> Self {
        Ways {
            outbound: (),
            inbound: (),
            flows: Reserved { config: Arc::clone(&config), stores },
            config,
            feedback: BTreeSet::new(),
            receive_rate: None,
            rare: None,
            bytes_written: 0,
            marking: Marking::default(),
            stats: Stats::default(),
            trace: Trace::default(),
            events: VecDeque::new(),
        }
    }

    /// The same with both ways, and flows. They take over what these have.
    pub fn opened(&mut self, side: Side, outbound: Outbound, inbound: Inbound) -> Ways {
        let Reserved { config, stores } = &mut self.flows;
        let mut flows = Flows::new(side, Arc::clone(config), stores.hand_over());
        flows.scheduler = self.config.requirements.conn_scheduler;
        Ways {
            config: Arc::clone(&self.config),
            outbound,
            inbound,
            flows,
            feedback: BTreeSet::new(),
            receive_rate: None,
            rare: self.rare.take(),
            bytes_written: 0,
            marking: Marking::default(),
            stats: self.stats,
            trace: core::mem::take(&mut self.trace),
            events: core::mem::take(&mut self.events),
        }
    }
}

impl Ways {
    /// When the last packet was sent that the peer is to acknowledge.
    pub fn last_eliciting_at(&self) -> Time {
        self.outbound.ledger.last_eliciting_at()
    }
}
