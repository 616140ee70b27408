//! No rate control: packets leave as soon as they may.

use super::{Bucket, Pace, RateControl};
use crate::macros::inert;
use crate::mechanism::Consent;
use crate::time::Time;

inert!(
    Rate,
    "packets leave as soon as the window allows",
    context: (),
    consent: Consent::OfSender,
    // Windows leave in bursts: about half a window may meet the queue of the slowest link at once.
    predict: |_, facts, p| p.delay_p99_s += 0.5 * facts.rtt_min.as_secs_f64(),
);

impl RateControl for None {
    fn wait_until(&mut self, _: &mut Bucket, _: Time, _: &Pace) -> Option<Time> {
        Option::None
    }

    fn on_sent(&mut self, bucket: &mut Bucket, now: Time, _: u64, _: &Pace) {
        // rate.md R-2: a successor starts from what was earned since the last packet, not from a
        // full burst.
        bucket.empty(now);
    }

    fn batch_bytes(&self, _: &Bucket, _: &Pace) -> u64 {
        u64::MAX
    }
}
