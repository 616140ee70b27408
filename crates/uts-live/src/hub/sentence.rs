//! One sentence for what is happening.

use super::Figures;
use crate::end::Kind;
use crate::word::Step;
use std::time::{Duration, Instant};

/// A move of the path is told for this long, unless an exchange answers it.
const MOVED_FOR: Duration = Duration::from_secs(6);
/// A step of an exchange is told for this long.
const STEP_FOR: Duration = Duration::from_secs(9);
/// Rates that differ by less than this share are alike.
const ALIKE: f64 = 0.1;

/// The latest that may be told.
#[derive(Default)]
pub(super) struct Last {
    pub moved: Option<(Instant, String)>,
    step: Option<(Instant, Step)>,
}

impl Last {
    /// Hears a step of an exchange.
    pub fn hear(&mut self, step: &Step) {
        self.step = match (step.kind.as_str(), self.step.take()) {
            // The answer says only that it is one.
            ("agreed", Some((_, asked))) if asked.epoch == step.epoch => {
                Some((Instant::now(), Step { kind: step.kind.clone(), ..asked }))
            }
            ("asked" | "refused" | "failed" | "brought", _) => Some((Instant::now(), step.clone())),
            (_, before) => before,
        };
    }

    /// The sentence, as things are.
    pub fn sentence(&self, kinds: &[Kind; 2], figures: &[Figures; 2]) -> String {
        let step = self.step.as_ref().filter(|(at, _)| at.elapsed() < STEP_FOR);
        let moved = self.moved.as_ref().filter(|(at, _)| at.elapsed() < MOVED_FOR);
        match (step, moved) {
            (Some((stepped_at, step)), moved) if moved.is_none_or(|(at, _)| at < stepped_at) => of_step(step),
            (_, Some((_, moved))) => format!("The path has changed: {moved}."),
            _ => comparison(kinds, figures),
        }
    }
}

fn of_step(step: &Step) -> String {
    let Step { saw, changed, expects, brought, .. } = step;
    let saw = if saw.is_empty() { "its application asked".to_owned() } else { format!("it saw {saw}") };
    match step.kind.as_str() {
        "asked" => format!("UTS asks for {changed}, because {saw}."),
        "agreed" if expects.is_empty() => format!("UTS now has {changed}, because {saw}."),
        "agreed" => format!("UTS now has {changed}, because {saw}, and expects {expects}."),
        "refused" => format!("The peer refused {brought}."),
        "failed" => "The peer did not answer, and the old mechanisms go on.".to_owned(),
        _ => format!("The exchange has brought {brought}."),
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Uts => "UTS",
        Kind::Fixed => "the fixed profile",
        Kind::Tcp => "TCP",
    }
}

fn comparison(kinds: &[Kind; 2], [ours, theirs]: &[Figures; 2]) -> String {
    let [own, other] = kinds.map(name);
    let (Some(own_rate), Some(other_rate)) = (ours.file, theirs.file) else {
        return "Both sides are connecting.".to_owned();
    };
    let rates = if own_rate > other_rate * (1.0 + ALIKE) || own_rate < other_rate * (1.0 - ALIKE) {
        format!("{own} carries the file at {own_rate:.1} Mbit/s and {other} at {other_rate:.1}")
    } else {
        format!("Both carry the file at about {own_rate:.1} Mbit/s")
    };
    match (ours.in_time, theirs.in_time) {
        (Some(own_share), Some(other_share)) => {
            format!(
                "{rates}; of the voice, {own_share:.0} % is in time over {own} and {other_share:.0} % over {other}."
            )
        }
        _ => format!("{rates}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(file: f64, in_time: f64) -> Figures {
        Figures { file: Some(file), in_time: Some(in_time), ..Figures::default() }
    }

    const KINDS: [Kind; 2] = [Kind::Uts, Kind::Tcp];

    #[test]
    fn figures_are_compared() {
        let last = Last::default();
        assert_eq!(
            last.sentence(&KINDS, &[figures(9.0, 98.2), figures(4.04, 61.0)]),
            "UTS carries the file at 9.0 Mbit/s and TCP at 4.0; of the voice, 98 % is in time over UTS and 61 % over TCP."
        );
        let alike = last.sentence(&KINDS, &[figures(9.0, 98.2), figures(9.3, 61.0)]);
        assert!(alike.starts_with("Both carry the file at about 9.0 Mbit/s; "), "{alike}");
        assert_eq!(last.sentence(&KINDS, &[Figures::default(); 2]), "Both sides are connecting.");
        let fixed = last.sentence(&[Kind::Uts, Kind::Fixed], &[figures(9.0, 98.2), figures(4.0, 61.0)]);
        assert!(fixed.contains("the fixed profile at 4.0"), "{fixed}");
    }

    #[test]
    fn an_exchange_is_told_after_the_move_that_it_answers() {
        let mut last = Last::default();
        let none = [Figures::default(); 2];
        last.moved = Some((Instant::now(), "loss 0 → 5 %".into()));
        assert_eq!(last.sentence(&KINDS, &none), "The path has changed: loss 0 → 5 %.");
        let asked = Step {
            epoch: 4,
            kind: "asked".into(),
            saw: "5 % loss".into(),
            changed: "fec=rlc".into(),
            expects: "in time 99 %".into(),
            ..Step::default()
        };
        last.hear(&asked);
        assert_eq!(last.sentence(&KINDS, &none), "UTS asks for fec=rlc, because it saw 5 % loss.");
        last.hear(&Step { epoch: 4, kind: "agreed".into(), ..Step::default() });
        assert_eq!(
            last.sentence(&KINDS, &none),
            "UTS now has fec=rlc, because it saw 5 % loss, and expects in time 99 %."
        );
        last.hear(&Step { epoch: 4, kind: "brought".into(), brought: "99 %".into(), ..Step::default() });
        assert_eq!(last.sentence(&KINDS, &none), "The exchange has brought 99 %.");
    }
}
