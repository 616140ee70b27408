//! State that the two ways share: epochs in use and open, flows, and what is told and counted of
//! both.

use super::flows::tagged::FindMemory;
use super::marking::Marking;
use super::parts::Topic;
use super::receive::receive_rate::ReceiveRate;
use super::send::rate_hint::RateHint;
use super::{Flows, Inbound, Outbound, Side, Stats, Trace};
use crate::config::ConnectionConfig;
use crate::endpoint::budget::Stores;
use crate::event::Event;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use uts_functions::Time;

/// Wishes of the application that few have.
#[derive(Default)]
pub(super) struct Wishes {
    /// It wants to know at which rate it may send.
    pub rate_hint: Option<RateHint>,
    /// It may have memory for flows that the peer opens.
    pub finder: Option<Box<dyn FindMemory>>,
}

/// The way out, the way in, and the flows of both.
pub(super) struct Ways {
    /// Shared by all connections that were set up alike.
    pub config: Arc<ConnectionConfig>,
    /// `None` until the connection is established.
    pub outbound: Option<Outbound>,
    pub inbound: Option<Inbound>,
    pub flows: Flows,
    /// Topics on which mechanisms here speak to their halves at the sender of data.
    pub feedback: BTreeSet<Topic>,
    /// Where what is received is to keep a rate.
    pub receive_rate: Option<Box<ReceiveRate>>,
    /// Wishes of the application that few have. In a box, so that a connection at rest stays small.
    pub wishes: Option<Box<Wishes>>,
    /// Bytes that the application has handed over.
    pub bytes_written: u64,
    /// State of ECN marks: whether the path bears them.
    pub marking: Marking,
    pub stats: Stats,
    pub trace: Trace,
    pub events: VecDeque<Event>,
}

impl Ways {
    pub fn new(side: Side, config: Arc<ConnectionConfig>, stores: Stores) -> Self {
        Ways {
            flows: Flows::new(side, config.clone(), stores),
            config,
            outbound: None,
            inbound: None,
            feedback: BTreeSet::new(),
            receive_rate: None,
            wishes: None,
            bytes_written: 0,
            marking: Marking::default(),
            stats: Stats::default(),
            trace: Trace::default(),
            events: VecDeque::new(),
        }
    }

    pub fn outbound_mut(&mut self, change: impl FnOnce(&mut Outbound)) {
        if let Some(outbound) = &mut self.outbound {
            change(outbound);
        }
    }

    /// When the last packet was sent that the peer is to acknowledge.
    pub fn last_eliciting_at(&self) -> Time {
        self.outbound.as_ref().map_or(Time::ZERO, |outbound| outbound.ledger.last_eliciting_at())
    }
}
