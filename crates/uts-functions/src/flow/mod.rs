//! Flow control: keeping the sender from overrunning the receiver.

use crate::registry;
use crate::time::Time;
use core::time::Duration;
use enum_dispatch::enum_dispatch;

pub mod credit;
pub mod none;

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

impl Grant {
    /// At the start of a flow: the first window is granted.
    pub fn new(now: Time, window_bytes: u64, window_bytes_max: u64) -> Self {
        let window_bytes = window_bytes.min(window_bytes_max);
        Grant { limit: window_bytes, consumed: 0, window_bytes, window_bytes_max, grown_at: now }
    }
}

/// A policy over [`Grant`] at the receiver, and over the limit at the sender.
#[enum_dispatch]
pub trait FlowControl {
    /// Receiver's side: the window that a flow begins with, for [`Grant::new`]; `u64::MAX` = no bound but memory.
    fn window_bytes(&self) -> u64;
    /// Sender's side: the position up to which data may be sent, given the peer's `limit`.
    fn send_limit(&self, limit: u64) -> u64;
    /// Receiver's side: the application consumed data (or this mechanism has just taken over: call it once then); a new
    /// limit if one should be sent. May enlarge
    /// `state.window_bytes` up to its maximum. Sets `state.limit` to what it returns.
    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64>;
}

registry! {
    /// The flow-control mechanism in use.
    #[derive(Clone, Debug)]
    Slot: FlowControl, context: ();
    None => none::None,
    Credit => credit::Credit,
}
