//! No congestion control: the window never closes. For links that belong to one sender, beside flow
//! or rate control.

use super::learnt::Learnt;
use super::window::MIN_PACKETS;
use super::{Ack, Congestion, Context, Delivery, Loss, Summary};
use crate::function::Function;
use crate::mechanism::{Consent, Mechanism, Params};
use crate::time::{Rate, Time};

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None {
    summary: Summary,
    learnt: Learnt,
}

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        consent: Consent::OfSender,
        predict: |_, facts, prediction| {
            // Nothing keeps the sender from filling the buffer: one path's worth of it is the
            // common rule.
            let standing_s = facts.rtt_min.as_secs_f64();
            prediction.delay_s = prediction.delay_s.max(standing_s);
            prediction.delay_p99_s = prediction.delay_p99_s.max(standing_s);
        },
        ..Mechanism::inert(
            Function::Congestion,
            "no congestion control; only for links that belong to one sender",
        )
    };

    /// Builds it; the predecessor's knowledge is kept for a successor.
    pub fn build(_: &Params, context: &Context) -> Self {
        None { summary: context.summary, learnt: Learnt::new(&context.summary) }
    }
}

impl Congestion for None {
    fn on_sent(&mut self, _: Time, _: u64, _: &Delivery) {}

    fn on_ack(&mut self, ack: &Ack, _: &Delivery) {
        self.learnt.on_ack(ack);
    }

    fn on_loss(&mut self, _: &Loss, _: &Delivery) {}

    fn on_spurious_loss(&mut self, _: u64) {}

    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        let floor = MIN_PACKETS.saturating_mul(packet_bytes);
        self.summary.window_bytes = self.summary.window_bytes.max(floor);
        self.summary.threshold_bytes = self.summary.threshold_bytes.max(floor);
    }

    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Option::None
    }

    fn burst_bytes(&self) -> Option<u64> {
        Option::None
    }

    fn summary(&self) -> Summary {
        Summary { bandwidth: self.learnt.bandwidth(), rtt_min: self.learnt.rtt_min(), ..self.summary }
    }

    fn phase(&self) -> &'static str {
        "open"
    }
}
