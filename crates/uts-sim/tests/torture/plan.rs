//! Plan of a world of torture, all of it out of its seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use uts_engine::requirements::{Pin, Preference, Requirements};
use uts_engine::{ConnectionConfig, Direction};
use uts_functions::mechanism::Promise;
use uts_functions::{Choice, Function, Params, Profile, Time, library};
use uts_path::{PathConfig, Target};

/// Class of a world: properties that all its profiles have in common. So it is known what must come
/// of the data.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Lost data is repeated under every profile.
    pub reliable: bool,
    /// Order is kept under every profile.
    pub ordered: bool,
    /// Messages are messages under every profile.
    pub messages: bool,
    /// Packets without protection are allowed.
    pub unprotected: bool,
    /// Bits are flipped on the way.
    pub corrupts: bool,
    /// The slowest that the path ever is, in Mbit/s.
    pub rate_min_mbit: f64,
}

/// Data of one flow in one direction.
#[derive(Clone, Debug)]
pub struct LanePlan {
    /// Sizes of its messages; a single one for a run of bytes.
    pub sizes: Vec<usize>,
    /// It is sent message by message.
    pub messages: bool,
    /// Lifetime of each message in milliseconds.
    pub lifetime_ms: Option<u64>,
}

/// A flow, and who opens it.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    pub opener: usize,
    pub priority: u8,
    pub opens_at: Time,
    pub lane: LanePlan,
    pub back: Option<LanePlan>,
    /// Profile that is required of the opener's half, as far as it is not shared.
    pub own: Option<Box<Profile>>,
}

#[derive(Clone, Debug)]
pub enum Action {
    /// Node, direction, profile.
    Exchange(usize, Direction, Box<Profile>),
    /// A change of the path's directions.
    Path(Target, String),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub class: Class,
    pub path: PathConfig,
    pub path_text: String,
    pub config: ConnectionConfig,
    pub cid_bytes: [usize; 2],
    pub flows: Vec<FlowPlan>,
    /// By time since the connection is established.
    pub actions: VecDeque<(Time, Action)>,
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed ^ 0x746f_7274_7572_6521)
}

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let mut rng = rng(seed);
        let r = &mut rng;
        let corrupts = r.random_bool(0.3);
        let rate_mbit = 10f64.powf(r.random_range(-1.0..2.3));
        let class = Class {
            reliable: r.random_bool(0.7),
            ordered: r.random_bool(0.5),
            messages: r.random_bool(0.5),
            unprotected: r.random_bool(0.2),
            corrupts,
            rate_min_mbit: rate_mbit / 3.0,
        };
        let texts = [link(r, &class, rate_mbit), link(r, &class, rate_mbit)];
        let mut path = PathConfig::both(texts[0].parse().expect("a valid link"));
        path.backward = texts[1].parse().expect("a valid link");
        let flows = flows(r, &class);
        let bytes: usize =
            flows.iter().map(|f| f.lane.bytes() + f.back.as_ref().map_or(0, LanePlan::bytes)).sum();
        let span_ms = ((bytes as f64 * 8.0 / (rate_mbit * 1e3)) * 2.0 + 500.0).min(30_000.0) as u64;
        let actions = actions(r, &class, rate_mbit, span_ms);
        let mut flows = flows;
        for flow in &mut flows {
            flow.opens_at =
                Time::from_millis(if r.random_bool(0.5) { 0 } else { r.random_range(0..span_ms) });
        }
        Plan {
            config: config(r, &class),
            path_text: format!("-> {} <- {}", texts[0], texts[1]),
            class,
            path,
            cid_bytes: [r.random_range(0..9), r.random_range(0..9)],
            flows,
            actions,
        }
    }
}

impl LanePlan {
    pub fn bytes(&self) -> usize {
        self.sizes.iter().sum()
    }
}

fn config(r: &mut ChaCha8Rng, class: &Class) -> ConnectionConfig {
    let mut config = ConnectionConfig {
        idle_timeout: core::time::Duration::from_secs(5000),
        handshake_timeout: core::time::Duration::from_secs(60),
        credit_bytes_initial: 1 << r.random_range(13..19),
        credit_bytes_max: 1 << r.random_range(20..24),
        send_buffer_bytes: 1 << r.random_range(14..22),
        batch_packets_max: r.random_range(1..40),
        ..ConnectionConfig::default()
    };
    let mut assign = |text: &str| config.requirements.assign(text).expect("a valid property");
    assign(if r.random_bool(0.3) { "uts.adapt=on" } else { "uts.adapt=off" });
    // Every profile is to be tried, also those that an end would refuse its peer.
    assign("uts.consent=all");
    if class.unprotected {
        assign("uts.security=unprotected");
    }
    if class.messages {
        assign("preserveMsgBoundaries=require");
    }
    config
}

/// A link's description.
fn link(r: &mut ChaCha8Rng, class: &Class, rate_mbit: f64) -> String {
    let rate_mbit = rate_mbit * r.random_range(0.5..2.0);
    let delay_ms = r.random_range(0..200);
    let buffer = r.random_range(16..300);
    let mut text = format!("rate={rate_mbit:.3}mbit delay={delay_ms}ms buffer={buffer}p overhead=28");
    match r.random_range(0..4) {
        0 => {}
        1 => text += &format!(" loss={:.3}", r.random_range(0.0..0.05)),
        2 => text += &format!(" loss={:.3}", r.random_range(0.0..0.3)),
        _ => text += &format!(" loss=ge:{:.3},{:.1}", r.random_range(0.0..0.3), r.random_range(1.5..8.0)),
    }
    if r.random_bool(0.4) {
        let shape = ["", ",bell", ",reorder", ",bell,reorder"][r.random_range(0..4)];
        text += &format!(" jitter={}ms{shape}", r.random_range(1..80));
    }
    if r.random_bool(0.3) {
        text += &format!(" reorder={:.3},{}ms", r.random_range(0.0..0.2), r.random_range(1..100));
    }
    if r.random_bool(0.3) {
        text += &format!(" duplicate={:.3}", r.random_range(0.0..0.3));
    }
    if class.corrupts {
        text += &format!(" corrupt={:.3},{}", r.random_range(0.0..0.1), r.random_range(1..8));
    }
    if r.random_bool(0.3) {
        text += &format!(" mtu={}", r.random_range(576..1600));
    }
    text
}

fn flows(r: &mut ChaCha8Rng, class: &Class) -> Vec<FlowPlan> {
    let count = r.random_range(1..6);
    let budget = r.random_range(50_000..300_000) / count;
    (0..count)
        .map(|_| FlowPlan {
            opener: r.random_range(0..2),
            priority: r.random_range(0..4) * 60,
            opens_at: Time::ZERO,
            lane: lane(r, class, budget),
            back: r.random_bool(0.4).then(|| lane(r, class, budget / 2)),
            own: r.random_bool(0.3).then(|| Box::new(profile(r, class))),
        })
        .collect()
}

fn lane(r: &mut ChaCha8Rng, class: &Class, budget: usize) -> LanePlan {
    if r.random_bool(0.5) {
        let bytes = r.random_range(0..budget + 1);
        return LanePlan { sizes: vec![bytes], messages: false, lifetime_ms: None };
    }
    let typical = 10f64.powf(r.random_range(1.2..4.2));
    let mut left = budget;
    let mut sizes = Vec::new();
    while left > 0 && sizes.len() < 600 {
        let size = (12 + (r.random_range(0.0..2.0) * typical) as usize).min(16_000);
        // Those of one length, one behind the other, may travel together.
        let count = if r.random_bool(0.3) { r.random_range(2..20).min(left / size + 1) } else { 1 };
        sizes.extend(std::iter::repeat_n(size, count));
        left = left.saturating_sub(size * count);
    }
    let lifetime = !class.reliable && r.random_bool(0.3);
    let lifetime_ms = lifetime.then(|| r.random_range(20..2000));
    LanePlan { sizes, messages: true, lifetime_ms }
}

fn actions(r: &mut ChaCha8Rng, class: &Class, rate_mbit: f64, span_ms: u64) -> VecDeque<(Time, Action)> {
    let mut list = Vec::new();
    for _ in 0..r.random_range(0..14) {
        let direction = if r.random_bool(0.5) { Direction::Out } else { Direction::In };
        let action = Action::Exchange(r.random_range(0..2), direction, Box::new(profile(r, class)));
        list.push((r.random_range(0..span_ms), action));
    }
    for _ in 0..r.random_range(0..3) {
        let target = [
            Target::One(uts_path::Direction::Forward),
            Target::One(uts_path::Direction::Backward),
            Target::Both,
        ][r.random_range(0..3)];
        list.push((r.random_range(0..span_ms), Action::Path(target, link(r, class, rate_mbit))));
    }
    if r.random_bool(0.3) {
        let from = r.random_range(0..span_ms);
        let both = Target::Both;
        list.push((from, Action::Path(both, "down".into())));
        list.push((from + r.random_range(50..3000), Action::Path(both, "up".into())));
    }
    list.sort_by_key(|(at, _)| *at);
    list.into_iter().map(|(at, action)| (Time::from_millis(at), action)).collect()
}

/// Requirements that lead to what is not shared of a profile.
pub fn requirements(profile: &Profile, class: &Class) -> Requirements {
    let any = Preference::NoPreference;
    let mut requirements = Requirements { reliability: any, preserve_order: any, ..Requirements::default() };
    for (function, choice) in profile.choices().filter(|(f, _)| !f.is_shared()) {
        // Whether packets are authenticated is for group 0 to say.
        if function != Function::Detection || class.unprotected {
            requirements.pin(Pin { function, choice });
        }
    }
    requirements
}

/// A valid profile out of the whole library, within what the class allows.
pub fn profile(r: &mut ChaCha8Rng, class: &Class) -> Profile {
    loop {
        let mut profile = Profile::bare();
        for &function in Function::ALL {
            let list = library::of(function);
            let mechanism = list[r.random_range(0..list.len())];
            profile.set(function, choice(r, mechanism));
        }
        if profile.check().is_ok() && fits(&profile, class) {
            return profile;
        }
    }
}

/// True if lost data is repeated until it has arrived, and data that has arrived is handed over.
fn keeps_all(profile: &Profile) -> bool {
    let retransmission = profile.mechanism(Function::Retransmission);
    retransmission.is_some_and(|m| m.promises(Promise::Reliability))
        && !profile.mechanisms().any(|m| m.facts.passes_over)
}

fn choice(r: &mut ChaCha8Rng, mechanism: &'static uts_functions::Mechanism) -> Choice {
    let mut choice = mechanism.choice();
    let mut params = Params::default();
    for (index, param) in mechanism.params.iter().enumerate() {
        // Mostly within a factor of four of the default, seldom anything that is allowed.
        let (low, high) = match r.random_range(0..8) {
            0 => (param.min, param.max.min(param.default.saturating_mul(50))),
            1..4 => (param.default, param.default),
            _ => (param.min.max(param.default / 4), param.max.min(param.default.saturating_mul(4).max(1))),
        };
        params.0[index] = r.random_range(low.min(high)..=high.max(low));
    }
    if mechanism.name == "poll-status" && params.get(1) == 0 {
        // Only packets of that number ask: a small window that is lost waits for many time-outs.
        params.0[0] = params.0[0].min(4);
    }
    choice.params = params;
    choice
}

fn fits(profile: &Profile, class: &Class) -> bool {
    let name = |f| profile.name(f);
    let unprotected = name(Function::Protection) == "none";
    // Blind sending into a slow path is not what is tried here: it takes for ever.
    let blind = name(Function::Congestion) == "none" && class.rate_min_mbit < 3.0;
    let detects = !class.corrupts || name(Function::Detection) == "crc-32c";
    !blind
        && (!unprotected || class.unprotected)
        && (!class.unprotected || detects)
        && (!class.reliable || keeps_all(profile))
        // What keeps messages to a rate may throw some away.
        && (!class.reliable || !profile.mechanisms().any(|m| m.facts.judges))
        && (!class.ordered || name(Function::Sequencing) == "ordered")
        && (!class.messages || name(Function::Segmentation) == "messages")
        && (class.messages || name(Function::Presentation) == "none")
}
