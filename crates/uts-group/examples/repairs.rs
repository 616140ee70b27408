//! Requests and repairs of groups of 1 to 1,000 receivers, in virtual time, beside the number of
//! requests that RFC 5401 expects.
//!
//! ```text
//! cargo run --release -p uts-group --features simulation --example repairs
//! ```

use core::time::Duration;
use uts_group::backoff::expected_requests;
use uts_group::simulation::{Outcome, Scene, run};
use uts_group::{Answers, SenderSettings};

fn main() {
    println!(
        "| losses | answers | receivers | requests by loss | expected | repairs by lost source | repairs by loss of a receiver |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, shared_loss, own_loss) in [("shared, 1 %", 0.01, 0.0), ("each its own, 1 %", 0.0, 0.01)] {
        for answers in [Answers::Prompt, Answers::Gathered] {
            for receivers in [1, 10, 100, 1000] {
                row(name, answers, &scene(receivers, answers, shared_loss, own_loss));
            }
        }
    }
}

/// Ways of 20 ms, so that the round trip of the group is that of each.
fn scene(receivers: usize, answers: Answers, shared_loss: f64, own_loss: f64) -> Scene {
    let sender = SenderSettings { answers, parities: 0, ..SenderSettings::default() };
    let way = Duration::from_millis(20);
    Scene { receivers, sender, shared_loss, own_loss, way: (way, way), messages: 3000, ..Scene::default() }
}

fn row(name: &str, answers: Answers, scene: &Scene) {
    let outcome: Outcome = run(scene);
    assert_eq!(outcome.whole, scene.receivers, "each receiver has all");
    let grtt = scene.way.1 * 2;
    let expected = expected_requests(scene.receivers as u32, grtt * scene.sender.backoff.into(), grtt);
    println!(
        "| {name} | {answers:?} | {} | {:.2} | {expected:.2} | {:.2} | {:.4} |",
        scene.receivers,
        outcome.requests_per_loss_event(),
        outcome.repairs_per_lost_source(),
        (outcome.sender.repairs + outcome.sender.unasked) as f64 / outcome.losses.max(1) as f64,
    );
}
