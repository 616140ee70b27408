//! All that is known now, for all who look: the path, both sides, their latest figures, exchanges.

mod sentence;

use crate::bed::Bed;
use crate::end::Kind;
use crate::explain::{Explained, explain};
use crate::knobs::{KNOBS, Knobs, PRESETS};
use crate::word::{Arrived, Asks, Step, Tile, Traffic, VOICE_DEADLINE, Word};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;

/// Points of the pictures that a page gets which comes later: a minute.
const POINTS_MAX: usize = 240;
/// Events (exchanges, moves of the path, breaks) that it gets.
const EVENTS_MAX: usize = 60;
/// Messages that a slow page may be behind; then it misses some.
const BEHIND_MAX: usize = 256;
/// Time over which figures are averaged for the eye.
const MEAN_OVER: Duration = Duration::from_secs(2);
/// Time over which the share of a voice that is in time is counted.
const SHARE_OVER: Duration = Duration::from_secs(5);

/// Both sides that are compared, and why they are no better ones, if so.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub kinds: [Kind; 2],
    pub why: Option<String>,
}

/// All that is known now.
pub(crate) struct Hub {
    about: About,
    beds: Vec<Arc<Bed>>,
    began: Instant,
    news: broadcast::Sender<Arc<str>>,
    state: Mutex<State>,
    /// Held while the path moves, so that both paths see moves in one order.
    moving: Mutex<()>,
}

struct State {
    knobs: Knobs,
    asks: Asks,
    sides: [Watch; 2],
    points: VecDeque<Value>,
    events: VecDeque<Value>,
    last: sentence::Last,
}

/// The latest of a side.
#[derive(Default)]
struct Watch {
    arrived: VecDeque<(Instant, Arrived)>,
    keys_ms: Option<f64>,
    rtt_ms: Option<f64>,
    loss: Option<f64>,
    stacks: BTreeMap<Traffic, Vec<Tile>>,
    file_bytes: u64,
    is_up: bool,
}

/// A side's figures at a point of the pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Bytes of the file that arrive, in Mbit/s.
    pub file: Option<f64>,
    /// Bytes of the file so far, in MB.
    pub carried: f64,
    /// Share of the voice that is in time, in per cent.
    pub in_time: Option<f64>,
    /// Mean time one way of what came of the voice, in milliseconds.
    pub voice: Option<f64>,
    /// The longest wait for an echo, in milliseconds.
    pub keys: Option<f64>,
    /// Smoothed round trip, in milliseconds.
    pub rtt: Option<f64>,
    /// Loss that the transport has measured, in per cent.
    pub loss: Option<f64>,
}

impl Hub {
    pub fn new(about: About, knobs: Knobs, beds: Vec<Arc<Bed>>) -> Hub {
        let state = State {
            knobs,
            asks: Asks::default(),
            sides: Default::default(),
            points: VecDeque::new(),
            events: VecDeque::new(),
            last: sentence::Last::default(),
        };
        Hub {
            about,
            beds,
            began: Instant::now(),
            news: broadcast::channel(BEHIND_MAX).0,
            state: Mutex::new(state),
            moving: Mutex::new(()),
        }
    }

    /// All that is known, and what becomes known from now on.
    pub fn subscribe(&self) -> (Arc<str>, broadcast::Receiver<Arc<str>>) {
        let state = self.state();
        let news = self.news.subscribe();
        let stacks: Vec<_> = state.sides.iter().map(|side| side.stacks.clone()).collect();
        let hello = json!({
            "what": "hello",
            "kinds": self.about.kinds,
            "why": self.about.why,
            "deadline": VOICE_DEADLINE.as_millis() as u64,
            "sliders": KNOBS,
            "presets": PRESETS,
            "knobs": state.knobs,
            "asks": state.asks,
            "points": state.points,
            "events": state.events,
            "stacks": stacks,
        });
        (hello.to_string().into(), news)
    }

    /// Moves both paths.
    ///
    /// # Errors
    /// There is no such position; or a path has ended.
    pub fn set(&self, knobs: Knobs) -> Result<(), String> {
        let knobs = knobs.checked()?;
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        for bed in &self.beds {
            bed.set(&knobs).map_err(|error| format!("{error:#}"))?;
        }
        let mut state = self.state();
        let moved = knobs.differences(&state.knobs);
        state.knobs = knobs;
        self.tell(&json!({"what": "knobs", "knobs": knobs}));
        if !moved.is_empty() {
            state.last.moved = Some((Instant::now(), moved.clone()));
            self.event(&mut state, json!({"kind": "moved", "text": moved}));
        }
        Ok(())
    }

    /// The selector's choices for a path.
    ///
    /// # Errors
    /// There is no such position.
    pub fn explain(&self, knobs: Knobs) -> Result<Vec<Explained>, String> {
        explain(&knobs.checked()?, self.asks())
    }

    /// Asks something else of the connection of UTS.
    pub fn ask(&self, asks: Asks) {
        let mut state = self.state();
        if asks != state.asks {
            state.asks = asks;
            self.tell(&json!({"what": "asks", "asks": asks}));
            self.event(&mut state, json!({"kind": "asks", "asks": asks}));
        }
    }

    /// Requirements of the connection of UTS.
    pub fn asks(&self) -> Asks {
        self.state().asks
    }

    /// Hears an end of a side.
    pub fn hear(&self, number: usize, word: Word) {
        let mut state = self.state();
        let Some(side) = state.sides.get_mut(number) else { return };
        match word {
            Word::Ready(..) => {}
            Word::Arrived(arrived) => {
                side.is_up = true;
                side.file_bytes += arrived.file_bytes;
                side.arrived.push_back((Instant::now(), arrived));
                while side.arrived.front().is_some_and(|(at, _)| at.elapsed() > SHARE_OVER) {
                    side.arrived.pop_front();
                }
            }
            Word::Typed(typed) => {
                (side.keys_ms, side.rtt_ms, side.loss) = (typed.keys_ms, typed.rtt_ms, typed.loss);
            }
            Word::Stack(traffic, tiles) => {
                self.tell(&json!({"what": "stack", "side": number, "traffic": traffic, "tiles": tiles}));
                side.stacks.insert(traffic, tiles);
            }
            Word::Exchange(step) => {
                if number == 0 {
                    state.last.hear(&step);
                }
                self.exchange(&mut state, number, &step);
            }
        }
    }

    /// A side has ended and will begin anew.
    pub fn broken(&self, number: usize, why: &str) {
        let mut state = self.state();
        if let Some(side) = state.sides.get_mut(number) {
            let file_bytes = side.file_bytes;
            *side = Watch { file_bytes, ..Watch::default() };
        }
        self.event(&mut state, json!({"kind": "broken", "side": number, "text": why}));
    }

    /// A point of the pictures.
    pub fn tick(&self) {
        let mut state = self.state();
        let figures = [state.sides[0].figures(), state.sides[1].figures()];
        let sentence = state.last.sentence(&self.about.kinds, &figures);
        let point = json!({
            "what": "point",
            "t": (self.began.elapsed().as_secs_f64() * 100.0).round() / 100.0,
            "rate": state.knobs.rate,
            "sides": figures,
            "now": sentence,
        });
        self.tell(&point);
        state.points.push_back(point);
        if state.points.len() > POINTS_MAX {
            state.points.pop_front();
        }
    }

    fn exchange(&self, state: &mut State, number: usize, step: &Step) {
        let mut value = serde_json::to_value(step).unwrap_or_default();
        value["side"] = number.into();
        self.event(state, value);
    }

    fn event(&self, state: &mut State, mut value: Value) {
        value["what"] = "event".into();
        value["t"] = self.began.elapsed().as_secs_f64().into();
        self.tell(&value);
        state.events.push_back(value);
        if state.events.len() > EVENTS_MAX {
            state.events.pop_front();
        }
    }

    fn tell(&self, value: &Value) {
        // Nobody may be looking.
        let _ = self.news.send(value.to_string().into());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn figures(&self) -> Figures {
        let carried = self.file_bytes as f64 / 1e6;
        if !self.is_up {
            return Figures { carried, ..Figures::default() };
        }
        let lately = || self.arrived.iter().filter(|(at, _)| at.elapsed() <= MEAN_OVER).map(|(_, a)| a);
        let (bytes, span_s) = lately().fold((0, 0.0), |(bytes, s), a| (bytes + a.file_bytes, s + a.span_s));
        let sum = |of: fn(&Arrived) -> u64| self.arrived.iter().map(|(_, arrived)| of(arrived)).sum::<u64>();
        let (due, in_time) = (sum(|a| a.voice_due), sum(|a| a.voice_in_time));
        Figures {
            file: (span_s > 0.0).then(|| bytes as f64 * 8.0 / span_s / 1e6),
            carried,
            in_time: (due > 0).then(|| in_time as f64 / due as f64 * 100.0),
            voice: self.arrived.back().and_then(|(_, arrived)| arrived.voice_ms),
            keys: self.keys_ms,
            rtt: self.rtt_ms,
            loss: self.loss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub() -> Hub {
        Hub::new(About { kinds: [Kind::Uts, Kind::Tcp], why: None }, Knobs::default(), Vec::new())
    }

    fn next(news: &mut broadcast::Receiver<Arc<str>>) -> Value {
        serde_json::from_str(&news.try_recv().unwrap()).unwrap()
    }

    #[test]
    fn a_page_hears_what_is_and_what_becomes() {
        let hub = hub();
        hub.set(Knobs { loss: 5.0, ..Knobs::default() }).unwrap();
        hub.tick();
        let (hello, mut news) = hub.subscribe();
        let hello: Value = serde_json::from_str(&hello).unwrap();
        assert_eq!(hello["knobs"]["loss"], 5.0);
        assert_eq!(hello["events"][0]["text"], "loss 0 → 5 %");
        assert_eq!(hello["points"].as_array().unwrap().len(), 1);
        assert_eq!(hello["kinds"], json!(["uts", "tcp"]));
        let step = Step { epoch: 3, kind: "asked".into(), saw: "loss".into(), ..Step::default() };
        hub.hear(0, Word::Exchange(step));
        let event = next(&mut news);
        assert_eq!(
            (&event["what"], &event["epoch"], &event["side"]),
            (&json!("event"), &json!(3), &json!(0))
        );
    }

    #[test]
    fn what_is_asked_is_told_once() {
        let hub = hub();
        let (_, mut news) = hub.subscribe();
        hub.ask(Asks::Interactive);
        hub.ask(Asks::Interactive);
        assert_eq!(next(&mut news), json!({"what": "asks", "asks": "interactive"}));
        assert_eq!(next(&mut news)["kind"], "asks");
        assert!(news.try_recv().is_err());
        assert_eq!(hub.asks(), Asks::Interactive);
    }

    #[test]
    fn memory_is_bounded() {
        let hub = hub();
        for n in 0..1000u32 {
            hub.tick();
            hub.hear(1, Word::Exchange(Step { epoch: n, ..Step::default() }));
            hub.hear(1, Word::Arrived(Arrived::default()));
        }
        let (hello, _news) = hub.subscribe();
        let hello: Value = serde_json::from_str(&hello).unwrap();
        assert_eq!(hello["points"].as_array().unwrap().len(), POINTS_MAX);
        let events = hello["events"].as_array().unwrap();
        assert_eq!((events.len(), &events[EVENTS_MAX - 1]["epoch"]), (EVENTS_MAX, &json!(999)));
    }

    #[test]
    fn a_position_that_is_none_moves_nothing() {
        let hub = hub();
        let (_, mut news) = hub.subscribe();
        assert!(hub.set(Knobs { loss: 99.0, ..Knobs::default() }).unwrap_err().starts_with("loss: 99"));
        assert!(news.try_recv().is_err());
    }

    #[test]
    fn figures_are_of_what_came() {
        let hub = hub();
        let arrived = Arrived {
            span_s: 0.25,
            file_bytes: 250_000,
            voice_due: 12,
            voice_in_time: 9,
            voice_ms: Some(31.0),
        };
        hub.hear(0, Word::Arrived(arrived));
        hub.hear(0, Word::Arrived(Arrived { file_bytes: 0, ..arrived }));
        let figures = hub.state().sides[0].figures();
        assert_eq!((figures.file, figures.carried), (Some(4.0), 0.25));
        assert_eq!((figures.in_time, figures.voice), (Some(75.0), Some(31.0)));
        assert_eq!(hub.state().sides[1].figures(), Figures::default(), "nothing is known of the other");
        hub.broken(0, "gone");
        let figures = hub.state().sides[0].figures();
        assert_eq!((figures.file, figures.carried), (None, 0.25), "what was carried stays");
    }
}
