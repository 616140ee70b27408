//! Follows a run: what both ends and the relay tell, put onto one time axis.

use super::child::End;
use super::display::Display;
use super::event::{Counters, Event, ExchangeTold, Kind, Told};
use super::plan::LinkHistory;
use super::samples::rounded;
use std::time::{Duration, Instant};
use uts_path::LinkConfig;
use uts_record::demo::{Exchange, LinkStep, Outcome, PathChange, ProfileUse, Progress};
use uts_relay::RelayEvent;

/// When an event was read, and the time that it bears.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    /// Seconds since the relay's start.
    read_s: f64,
    own_s: Option<f64>,
}

/// Places the times that an end gives. They count from an instant of its own; as reading an event
/// takes more or less time but never none, the least difference seen is the best guess at it.
#[derive(Debug, Default)]
struct Clock {
    offset_s: Option<f64>,
}

impl Clock {
    fn observe(&mut self, stamp: Stamp) {
        if let Some(own_s) = stamp.own_s {
            let offset_s = stamp.read_s - own_s;
            self.offset_s = Some(self.offset_s.map_or(offset_s, |least| least.min(offset_s)));
        }
    }

    /// Seconds since the relay's start.
    fn place(&self, stamp: Stamp) -> f64 {
        match (stamp.own_s, self.offset_s) {
            (Some(own_s), Some(offset_s)) => own_s + offset_s,
            _ => stamp.read_s,
        }
    }
}

/// Events that one end has told.
#[derive(Debug, Default)]
struct Heard {
    clock: Clock,
    progress: Vec<(Stamp, Told)>,
    counters: Counters,
    file_at: Option<Stamp>,
    done_at: Option<Stamp>,
    error: Option<String>,
}

#[derive(Debug)]
pub(super) struct Follower<'a> {
    display: &'a Display,
    relay_start: Instant,
    /// When the client's first datagram came, in seconds since the relay's start.
    joined_s: Option<f64>,
    client: Heard,
    server: Heard,
    exchanges: Vec<(Stamp, End, Exchange)>,
    /// Profiles that exchanges brought into force, for what the client sends.
    exchanged: Vec<(Stamp, String)>,
    changes: Vec<PathChange>,
    link: LinkHistory,
    most_bytes: u64,
    last_moved: Instant,
}

impl<'a> Follower<'a> {
    pub(super) fn new(display: &'a Display, relay_start: Instant, link: LinkConfig) -> Self {
        Follower {
            display,
            relay_start,
            joined_s: None,
            client: Heard::default(),
            server: Heard::default(),
            exchanges: Vec::new(),
            exchanged: Vec::new(),
            changes: Vec::new(),
            link: LinkHistory::new(link, 0.0),
            most_bytes: 0,
            last_moved: Instant::now(),
        }
    }

    /// For how long no more of the file has been carried, nor anything else happened.
    pub(super) fn idle(&self) -> Duration {
        self.last_moved.elapsed()
    }

    /// Bytes of the file that have been carried.
    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Error that an end gave.
    pub(super) fn error(&self, end: End) -> Option<&str> {
        self.heard(end).error.as_deref()
    }

    /// True if the client has said that the file has arrived.
    pub(super) fn finished(&self) -> bool {
        self.finished_at().is_some()
    }

    fn finished_at(&self) -> Option<Stamp> {
        self.client.file_at.or(self.client.done_at)
    }

    pub(super) fn relay_event(&mut self, event: RelayEvent) {
        self.last_moved = Instant::now();
        match event {
            RelayEvent::Joined { t_s, .. } => {
                self.joined_s.get_or_insert(t_s);
            }
            RelayEvent::Changed { t_s, target, change } => {
                self.link.change(t_s, target, &change);
                let change = PathChange { t_s, target: target.keyword().into(), change: change.to_string() };
                self.display.path_change(self.shown(t_s), &change.target, &change.change);
                self.changes.push(change);
            }
            RelayEvent::Left { .. } => {}
        }
    }

    pub(super) fn event(&mut self, end: End, at: Instant, event: Event) {
        let read_s = at.saturating_duration_since(self.relay_start).as_secs_f64();
        let stamp = Stamp { read_s, own_s: event.t_s };
        self.heard_mut(end).clock.observe(stamp);
        match event.kind {
            Kind::Progress(told) => self.progress(end, stamp, told),
            Kind::Exchange(told) => self.exchange(end, stamp, told),
            Kind::File(counters) => {
                let heard = self.heard_mut(end);
                heard.counters.update(counters);
                heard.file_at = Some(stamp);
            }
            Kind::Done(counters) => {
                let heard = self.heard_mut(end);
                heard.counters.update(counters);
                heard.done_at = Some(stamp);
            }
            Kind::Error(message) => self.heard_mut(end).error = Some(message),
            Kind::Start { .. } | Kind::Other => {}
        }
    }

    fn progress(&mut self, end: End, stamp: Stamp, told: Told) {
        if told.bytes.is_some_and(|bytes| bytes > self.most_bytes) {
            self.most_bytes = told.bytes.unwrap_or_default();
            self.last_moved = Instant::now();
        }
        if end == End::Client {
            self.display.progress(self.shown(stamp.read_s), &told);
        }
        let heard = self.heard_mut(end);
        heard.counters.update(told.counters);
        heard.progress.push((stamp, told));
    }

    fn exchange(&mut self, end: End, stamp: Stamp, told: ExchangeTold) {
        self.last_moved = Instant::now();
        let t_s = self.shown(stamp.read_s);
        if told.step == "requested" {
            let exchange = new_exchange(end, &told);
            self.display.exchange(t_s, self.exchanges.len() + 1, &exchange);
            self.exchanges.push((stamp, end, exchange));
            return;
        }
        let index = match (self.find(end, &told), told.step.as_str()) {
            (Some(index), _) => index,
            // It was agreed, and the request went unsaid.
            (None, "completed") => {
                self.exchanges.push((stamp, end, new_exchange(end, &told)));
                self.exchanges.len() - 1
            }
            // The peer's side of an exchange, or a step that is not known.
            (None, _) => return,
        };
        let Some((_, _, exchange)) = self.exchanges.get_mut(index) else { return };
        let what = match told.step.as_str() {
            "completed" => {
                if end == End::Client && told.direction != "in" && !told.profile.is_empty() {
                    self.exchanged.push((stamp, told.profile));
                }
                exchange.outcome = Outcome::Agreed;
                exchange.took_ms = told.took_ms;
                let after = told.took_ms.map(|ms| format!(" after {ms:.0} ms")).unwrap_or_default();
                format!("in force{after}")
            }
            "refused" => {
                exchange.outcome = Outcome::Refused(told.line.clone());
                format!("refused: {}", told.line)
            }
            "failed" => {
                exchange.outcome = Outcome::Failed;
                "failed: the peer did not answer".into()
            }
            "brought" => {
                exchange.brought = told.line.clone();
                format!("brought: {}", told.line)
            }
            _ => return,
        };
        self.display.outcome(t_s, index + 1, &what);
    }

    /// The exchange that a later step belongs to. What one brought bears no direction.
    fn find(&self, end: End, told: &ExchangeTold) -> Option<usize> {
        self.exchanges.iter().rposition(|(_, by, e)| {
            let direction_fits = told.direction.is_empty() || told.direction == e.direction;
            *by == end && e.epoch == told.epoch && direction_fits
        })
    }

    fn heard(&self, end: End) -> &Heard {
        match end {
            End::Client => &self.client,
            End::Server => &self.server,
        }
    }

    fn heard_mut(&mut self, end: End) -> &mut Heard {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// A time since the relay's start as it is shown.
    fn shown(&self, relay_s: f64) -> f64 {
        (relay_s - self.joined_s.unwrap_or(relay_s)).max(0.0)
    }

    /// Events that were heard, with times since the client's first datagram. `None` if the client
    /// has not said that the file has arrived.
    pub(super) fn conclude(self) -> Option<Followed> {
        let origin_s = self.joined_s.unwrap_or_default();
        let finished_s = self.client.clock.place(self.finished_at()?) - origin_s;
        let clocks = |end: End| match end {
            End::Client => &self.client.clock,
            End::Server => &self.server.clock,
        };
        let exchanges = self.exchanges.iter().map(|(stamp, end, exchange)| {
            let mut exchange = exchange.clone();
            exchange.t_s = rounded(clocks(*end).place(*stamp) - origin_s);
            exchange
        });
        let step = |s: &LinkStep| LinkStep { t_s: rounded(s.t_s - origin_s), ..*s };
        let changes = self.changes.iter();
        Some(Followed {
            origin_s,
            client_offset_s: self.client.clock.offset_s.unwrap_or_default() - origin_s,
            finished_s: rounded(finished_s),
            exchanges: exchanges.collect(),
            changes: changes.map(|c| PathChange { t_s: rounded(c.t_s - origin_s), ..c.clone() }).collect(),
            link: self.link.steps.iter().map(step).collect(),
            profiles: profiles(&self.client, &self.exchanged, origin_s),
            progress: columns(&self.client, origin_s),
            received: columns(&self.server, origin_s),
            client: self.client.counters,
            server: self.server.counters,
        })
    }
}

/// Events of a run, on one time axis.
#[derive(Debug)]
pub(super) struct Followed {
    /// The origin, in seconds since the relay's start.
    pub origin_s: f64,
    /// Seconds to add to times that the client gives.
    pub client_offset_s: f64,
    pub finished_s: f64,
    pub exchanges: Vec<Exchange>,
    pub changes: Vec<PathChange>,
    pub link: Vec<LinkStep>,
    pub profiles: Vec<ProfileUse>,
    pub progress: Progress,
    pub received: Progress,
    pub client: Counters,
    pub server: Counters,
}

fn new_exchange(end: End, told: &ExchangeTold) -> Exchange {
    Exchange {
        end: end.name().into(),
        direction: told.direction.clone(),
        epoch: told.epoch,
        seen: told.seen.clone(),
        changes: told.changes.clone(),
        expects: told.expects.clone(),
        ..Exchange::default()
    }
}

fn columns(heard: &Heard, origin_s: f64) -> Progress {
    let mut columns = Progress::default();
    for (stamp, told) in &heard.progress {
        let Some(bytes) = told.bytes else { continue };
        columns.t_s.push(rounded(heard.clock.place(*stamp) - origin_s));
        columns.bytes.push(bytes);
        columns.rtt_ms.push(told.rtt_ms);
        columns.loss.push(told.loss);
    }
    columns
}

/// Profiles in the order of their use. What an exchange brought into force is said in full by its
/// event, and abridged by progress that follows; where exchanges say it, progress is heard only up
/// to the first.
fn profiles(heard: &Heard, exchanged: &[(Stamp, String)], origin_s: f64) -> Vec<ProfileUse> {
    let place = |stamp: Stamp| rounded((heard.clock.place(stamp) - origin_s).max(0.0));
    let first_s = exchanged.first().map_or(f64::INFINITY, |(stamp, _)| place(*stamp));
    let told =
        heard.progress.iter().filter_map(|(stamp, told)| Some((place(*stamp), told.profile.as_ref()?)));
    let told = told.filter(|(t_s, _)| *t_s < first_s);
    let exchanged = exchanged.iter().map(|(stamp, profile)| (place(*stamp), profile));
    let mut profiles: Vec<ProfileUse> = Vec::new();
    for (t_s, profile) in told.chain(exchanged) {
        if profiles.last().is_none_or(|last| last.profile != *profile) {
            profiles.push(ProfileUse { t_s, profile: profile.clone() });
        }
    }
    profiles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event;
    use uts_path::{Direction, Target};

    struct Script<'a> {
        follower: Follower<'a>,
        start: Instant,
    }

    impl<'a> Script<'a> {
        fn new(display: &'a Display) -> Self {
            let start = Instant::now();
            let link = "rate=50mbit".parse().unwrap();
            Script { follower: Follower::new(display, start, link), start }
        }

        fn hear(&mut self, end: End, read_ms: u64, line: &str) {
            let at = self.start + Duration::from_millis(read_ms);
            self.follower.event(end, at, event::read(line).unwrap());
        }
    }

    #[test]
    fn an_exchange_is_followed_from_request_to_result() {
        let display = Display::new(100);
        let mut script = Script::new(&display);
        let client = "127.0.0.1:9".parse().unwrap();
        script.follower.relay_event(RelayEvent::Joined { t_s: 0.2, client });
        let exchange = |step: &str, t: f64, rest: &str| {
            format!(r#"{{"event":"exchange","t":{t},"step":"{step}","epoch":1{rest}}}"#)
        };
        let out = r#","direction":"out""#;
        script.hear(End::Client, 1000, r#"{"event":"start","t":0.5}"#);
        script.hear(End::Client, 1100, r#"{"event":"progress","t":0.55,"bytes":1,"profile":"plain"}"#);
        script.hear(End::Client, 1540, &exchange("requested", 1.0, &format!(r#"{out},"seen":"loss""#)));
        script.hear(End::Server, 1550, &exchange("granted", 0.1, r#","direction":"in","profile":"fec=no""#));
        script.hear(
            End::Client,
            1580,
            &exchange("completed", 1.04, &format!(r#"{out},"took_ms":40,"profile":"fec=xor""#)),
        );
        script.hear(End::Client, 1700, r#"{"event":"progress","t":1.1,"bytes":2,"profile":"xor"}"#);
        script.hear(End::Client, 2500, &exchange("brought", 2.0, r#","line":"as expected""#));
        script.hear(End::Client, 3000, r#"{"event":"file","t":2.5,"packets_sent":9}"#);
        let followed = script.follower.conclude().unwrap();
        assert_eq!(followed.exchanges.len(), 1);
        let e = &followed.exchanges[0];
        assert_eq!((e.t_s, e.took_ms, &e.outcome), (1.3, Some(40.0), &Outcome::Agreed));
        assert_eq!((e.seen.as_str(), e.brought.as_str()), ("loss", "as expected"));
        assert_eq!((followed.finished_s, followed.client.sent), (2.8, Some(9)));
        let profiles: Vec<_> = followed.profiles.iter().map(|p| (p.t_s, p.profile.as_str())).collect();
        assert_eq!(profiles, [(0.85, "plain"), (1.34, "fec=xor")]);
    }

    #[test]
    fn the_promptest_event_sets_the_clock() {
        let display = Display::new(100);
        let mut script = Script::new(&display);
        for (read_ms, t, bytes) in [(150, 0.0, 10), (1030, 1.0, 20), (2090, 2.0, 30)] {
            let line = format!(r#"{{"event":"progress","t":{t},"bytes":{bytes}}}"#);
            script.hear(End::Client, read_ms, &line);
        }
        script.hear(End::Client, 3100, r#"{"event":"done"}"#);
        let followed = script.follower.conclude().unwrap();
        assert_eq!(followed.progress.t_s, [0.03, 1.03, 2.03]);
        assert_eq!(followed.finished_s, 3.1);
    }

    #[test]
    fn the_paths_changes_are_kept_and_an_unfinished_copy_concludes_nothing() {
        let display = Display::new(100);
        let mut script = Script::new(&display);
        let change = "loss=0.01".parse().unwrap();
        let target = Target::One(Direction::Forward);
        script.follower.relay_event(RelayEvent::Changed { t_s: 0.5, target, change });
        assert_eq!(script.follower.link.steps.len(), 2);
        assert_eq!(script.follower.changes[0].change, "loss=0.01");
        assert!(script.follower.conclude().is_none());
    }
}
