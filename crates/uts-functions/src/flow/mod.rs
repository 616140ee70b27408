//! Flow control: keeping the sender from overrunning the receiver.

use crate::mechanism::Mechanism;
use crate::time::Time;
use core::time::Duration;
use enum_dispatch::enum_dispatch;

/// The receiver's state for one flow: what it has granted and what has been consumed.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The sender may send positions below this.
    pub limit: u64,
    /// The application has taken everything below this (or it was skipped).
    pub consumed: u64,
    /// How far ahead of `consumed` the sender may run at present.
    pub window_bytes: u64,
    /// The most that `window_bytes` may become: memory set aside for the flow.
    pub window_bytes_max: u64,
    /// When the window was last found to be the brake.
    pub grown_at: Time,
}

/// A policy over [`Grant`] at the receiver, and over the limit at the sender.
#[enum_dispatch]
pub trait FlowControl {
    /// Sender's side: the position up to which data may be sent, given the peer's `limit`.
    fn send_limit(&self, limit: u64) -> u64;
    /// Receiver's side: the application consumed data; a new limit if one should be sent. May enlarge
    /// `state.window_bytes` up to its maximum. Sets `state.limit` to what it returns.
    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64>;
}

/// The mechanisms of this function, in the order of their numbers.
pub static MECHANISMS: &[&Mechanism] = &[];
