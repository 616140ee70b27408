//! Scenarios: nine services, and what they go over.

use core::time::Duration;
use uts_path::PathConfig;
use uts_traffic::workload::Workload;

/// Work of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// One large file: as much as arrives in some seconds.
    File,
    /// Twenty files of 20 kB, four at a time.
    Files,
    /// Short requests with short answers, two at a time.
    Requests,
    /// Requests with answers of 100 kB, one after another.
    Answers,
    /// A message of 160 bytes every 20 ms.
    Voice,
    /// Thirty frames a second.
    Video,
    /// A person types, and sees each letter when it has come back.
    Keystrokes,
    /// A message of 64 bytes every 10 ms, with little time.
    Control,
    /// A message of 300 bytes every 100 ms, with much time.
    Telemetry,
}

impl Service {
    /// All of them.
    pub const ALL: [Service; 9] = [
        Service::File,
        Service::Files,
        Service::Requests,
        Service::Answers,
        Service::Voice,
        Service::Video,
        Service::Keystrokes,
        Service::Control,
        Service::Telemetry,
    ];

    /// As it stands in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Service::File => "file",
            Service::Files => "files",
            Service::Requests => "requests",
            Service::Answers => "answers",
            Service::Voice => "voice",
            Service::Video => "video",
            Service::Keystrokes => "keystrokes",
            Service::Control => "control",
            Service::Telemetry => "telemetry",
        }
    }

    /// Workload over a path of this rate (bit/s, of the way there) and one-way delay. A workload
    /// that lasts goes on for `lasting`.
    fn workload(self, rate_bps: f64, delay: Duration, lasting: Duration) -> Workload {
        let ms = Duration::from_millis;
        let messages = |every: u64, bytes: u64, time: u64| Workload::Messages {
            every: ms(every),
            bytes,
            duration: lasting,
            deadline: delay + ms(time),
        };
        match self {
            Service::File => {
                // A run is to stay within some 100,000 packets, and is to see more than the start.
                let seconds = (100_000.0 * 9600.0 / rate_bps).max(30.0 * delay.as_secs_f64());
                let seconds = seconds.clamp(1.0, lasting.as_secs_f64());
                Workload::Bulk { bytes: None, duration: Some(Duration::from_secs_f64(seconds)) }
            }
            Service::Files => Workload::Files { count: 20, bytes: 20_000, concurrency: 4 },
            Service::Requests => {
                let round_trip_s = 2.0 * delay.as_secs_f64() + 0.002;
                let count = (2.0 * lasting.as_secs_f64() / round_trip_s).clamp(50.0, 1000.0) as u32;
                Workload::Requests { count, request_bytes: 200, answer_bytes: 2000, concurrency: 2 }
            }
            Service::Answers => {
                Workload::Requests { count: 20, request_bytes: 200, answer_bytes: 100_000, concurrency: 1 }
            }
            Service::Voice => messages(20, 160, 150),
            Service::Video => Workload::Video {
                frames_per_s: 30,
                rate_bps: (rate_bps / 4.0).clamp(100_000.0, 4e6) as u64,
                key_every: 60,
                key_factor: 5.0,
                duration: lasting,
                deadline: delay + ms(200),
            },
            Service::Keystrokes => Workload::Keystrokes { count: 150, every: ms(100) },
            Service::Control => messages(10, 64, 60),
            Service::Telemetry => messages(100, 300, 1000),
        }
    }
}

/// A service over a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name: path and service, or the number that it was drawn by.
    pub name: String,
    /// The service.
    pub service: Service,
    /// Workload of the service.
    pub workload: Workload,
    /// Path that it goes over, as text: way there, way back, changes.
    pub path_text: [String; 3],
    /// The same.
    pub path: PathConfig,
    /// It was drawn, and is not to be looked at while the policy is tuned.
    pub is_drawn: bool,
}

impl Scenario {
    fn new(
        name: String,
        service: Service,
        (rate_bps, delay, lasting): (f64, Duration, Duration),
        path_text: [String; 3],
        is_drawn: bool,
    ) -> Result<Self, String> {
        let wrong = |what: &str, why: String| format!("{name}: {what}: {why}");
        let [forward, backward, schedule] = &path_text;
        let path = PathConfig {
            forward: forward.parse().map_err(|e| wrong("forward", format!("{e}")))?,
            backward: backward.parse().map_err(|e| wrong("backward", format!("{e}")))?,
            schedule: schedule.parse().map_err(|e| wrong("schedule", format!("{e}")))?,
        };
        let workload = service.workload(rate_bps, delay, lasting);
        workload.validate().map_err(|why| wrong("workload", why))?;
        Ok(Scenario { name, service, workload, path_text, path, is_drawn })
    }
}

/// A path that has a name.
struct Named {
    name: &'static str,
    rate_bps: f64,
    delay_ms: u64,
    forward: &'static str,
    /// As forward if empty.
    backward: &'static str,
    schedule: &'static str,
    services: &'static [Service],
}

use Service::{Answers, Control, File, Files, Keystrokes, Requests, Telemetry, Video, Voice};

const NAMED: &[Named] = &[
    Named {
        name: "serial-line",
        rate_bps: 128e3,
        delay_ms: 30,
        forward: "rate=128kbit delay=30ms buffer=20p framing=ppp",
        backward: "",
        schedule: "",
        services: &[File, Requests, Voice, Keystrokes],
    },
    Named {
        name: "ethernet",
        rate_bps: 100e6,
        delay_ms: 5,
        forward: "rate=100mbit delay=5ms buffer=500kB",
        backward: "",
        schedule: "",
        services: &[File, Files, Video],
    },
    Named {
        name: "busy-ethernet",
        rate_bps: 10e6,
        delay_ms: 15,
        forward: "rate=10mbit delay=15ms buffer=1500kB",
        backward: "",
        schedule: "at=5s both rate=3mbit; at=10s both rate=10mbit; at=15s both rate=3mbit",
        services: &[File, Requests, Video, Keystrokes],
    },
    Named {
        name: "bursty-wifi",
        rate_bps: 60e6,
        delay_ms: 3,
        forward: "rate=60mbit delay=3ms jitter=3ms buffer=300kB loss=ge:0.05,4",
        backward: "",
        schedule: "",
        services: &[File, Requests, Voice, Video, Control],
    },
    Named {
        name: "cellular-hand-offs",
        rate_bps: 20e6,
        delay_ms: 25,
        forward: "rate=20mbit delay=25ms buffer=500kB",
        backward: "rate=10mbit delay=25ms buffer=300kB",
        schedule: "at=4s both down; at=4300ms both up; at=8s both down; at=8300ms both up; at=12s both down; at=12500ms both up; \
                   at=16s both down; at=17s both up",
        services: &[File, Answers, Voice, Keystrokes],
    },
    Named {
        name: "satellite-weather",
        rate_bps: 50e6,
        delay_ms: 300,
        forward: "rate=50mbit delay=300ms buffer=1500kB loss=0.001",
        backward: "rate=10mbit delay=300ms buffer=300kB loss=0.001",
        schedule: "at=5s both loss=0.02; at=12s both loss=0.001",
        services: &[File, Files, Requests, Video],
    },
    Named {
        name: "long-fat-pipe",
        rate_bps: 200e6,
        delay_ms: 75,
        forward: "rate=200mbit delay=75ms buffer=2MB loss=0.0001",
        backward: "",
        schedule: "",
        services: &[File, Answers],
    },
    Named {
        name: "data-centre",
        rate_bps: 1e9,
        delay_ms: 0,
        forward: "rate=1gbit delay=100us buffer=500kB",
        backward: "",
        schedule: "",
        services: &[File, Requests],
    },
    Named {
        name: "shallow-atm",
        rate_bps: 25e6,
        delay_ms: 10,
        forward: "rate=25mbit delay=10ms buffer=10p",
        backward: "",
        schedule: "",
        services: &[File, Files],
    },
    Named {
        name: "asymmetric",
        rate_bps: 50e6,
        delay_ms: 20,
        forward: "rate=50mbit delay=20ms buffer=500kB",
        backward: "rate=100kbit delay=20ms buffer=20p",
        schedule: "",
        services: &[File, Telemetry],
    },
    Named {
        name: "loss-that-flaps",
        rate_bps: 20e6,
        delay_ms: 20,
        forward: "rate=20mbit delay=20ms buffer=200kB",
        backward: "",
        schedule: "at=1s both loss=0.05; at=4s both loss=0; at=7s both loss=0.05; at=10s both loss=0; at=13s both loss=0.05; \
                   at=16s both loss=0",
        services: &[File, Requests, Voice, Control],
    },
];

/// Time that a workload that lasts goes on.
const LASTING: Duration = Duration::from_secs(20);

/// The scenarios that may be looked at.
///
/// # Errors
/// One that makes no sense, with what is wrong with it.
pub fn named() -> Result<Vec<Scenario>, String> {
    let mut scenarios = Vec::new();
    for path in NAMED {
        let backward = if path.backward.is_empty() { path.forward } else { path.backward };
        for service in path.services {
            scenarios.push(Scenario::new(
                format!("{}/{}", path.name, service.name()),
                *service,
                (path.rate_bps, Duration::from_millis(path.delay_ms), LASTING),
                [path.forward.into(), backward.into(), path.schedule.into()],
                false,
            )?);
        }
    }
    Ok(scenarios)
}

/// Numbers that look drawn at random, the same on any machine (SplitMix64).
struct Draw(u64);

impl Draw {
    /// Between 0 and 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between two numbers, each factor as likely as any other.
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.share())
    }
}

/// Scenario `number` of those that are drawn. All draws are independent:
///
/// * service: each of the nine equally likely;
/// * rate there: 64 kbit/s to 200 Mbit/s, log-uniform; one-way delay: 1 to 300 ms, log-uniform;
/// * buffer: 0.2 to 4 times what the path holds in a round trip, log-uniform, at least 7500 bytes;
/// * loss: none (40 %), 0.01 to 5 % log-uniform of single packets (30 %), the same in bursts of 2
///   to 8 (20 %), single losses that come and go every 3 s (10 %);
/// * a change: none (75 %), the rate halved after 5 s (15 %), an outage of 0.2 to 1 s every 4 s
///   (10 %);
/// * way back: as the way there (60 %), a tenth of its rate (25 %), 100 kbit/s (15 %), but not more
///   than there.
///
/// # Errors
/// If what was drawn makes no sense, which is a fault of this function.
pub fn drawn(number: u64) -> Result<Scenario, String> {
    let mut draw = Draw(number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let service = Service::ALL[(draw.share() * 9.0) as usize % 9];
    let rate_bps = draw.log(64e3, 200e6).round();
    let delay_ms = draw.log(1.0, 300.0);
    let pipe_bytes = rate_bps / 8.0 * 2.0 * delay_ms / 1000.0;
    let buffer = (pipe_bytes * draw.log(0.2, 4.0)).max(7500.0).round();
    let (kind, share, burst) = (draw.share(), draw.log(1e-4, 0.05), draw.log(2.0, 8.0));
    let loss = match kind {
        ..0.4 => String::new(),
        ..0.7 => format!(" loss={share:.5}"),
        ..0.9 => format!(" loss=ge:{share:.5},{burst:.1}"),
        _ => String::new(),
    };
    let mut changes = Vec::new();
    if kind >= 0.9 {
        let flaps = (1..7).map(|n| (3 * n, if n % 2 == 1 { share } else { 0.0 }));
        changes.extend(flaps.map(|(at, loss)| (f64::from(at), format!("both loss={loss:.5}"))));
    }
    let (change, outage_s) = (draw.share(), draw.log(0.2, 1.0));
    if (0.75..0.9).contains(&change) {
        changes.push((5.0, format!("fwd rate={}bit/s", (rate_bps / 2.0).round())));
    } else if change >= 0.9 {
        for at in [4.0, 8.0, 12.0, 16.0] {
            changes.extend([(at + 0.5, "both down".into()), (at + 0.5 + outage_s, "both up".into())]);
        }
    }
    changes.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let back_bps = match draw.share() {
        ..0.6 => rate_bps,
        ..0.85 => rate_bps / 10.0,
        _ => rate_bps.min(100e3),
    };
    let link = |bps: f64| {
        let buffer = (buffer * bps / rate_bps).max(7500.0).round();
        format!("rate={}bit/s delay={:.0}us buffer={buffer}B{loss}", bps.round(), delay_ms * 1e3)
    };
    let schedule: Vec<String> =
        changes.into_iter().map(|(at, what)| format!("at={:.0}ms {what}", at * 1e3)).collect();
    Scenario::new(
        format!("drawn-{number}/{}", service.name()),
        service,
        (rate_bps, Duration::from_secs_f64(delay_ms / 1e3), LASTING),
        [link(rate_bps), link(back_bps), schedule.join("; ")],
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_make_sense_and_have_names_of_their_own() {
        let named = named().expect("they make sense");
        let drawn = (0..500).map(|number| drawn(number).expect("it makes sense"));
        let all: Vec<Scenario> = named.iter().cloned().chain(drawn).collect();
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        assert!(named.len() >= 30, "{}", named.len());
        let services: BTreeSet<&str> = named.iter().map(|scenario| scenario.service.name()).collect();
        assert_eq!(services.len(), Service::ALL.len(), "each service is there: {services:?}");
    }

    #[test]
    fn what_is_drawn_follows_from_its_number_and_keeps_to_its_shares() {
        assert_eq!(drawn(7), drawn(7));
        let all: Vec<Scenario> = (0..2000).map(|number| drawn(number).expect("it makes sense")).collect();
        let share = |is: &dyn Fn(&Scenario) -> bool| all.iter().filter(|s| is(s)).count() as f64 / 2000.0;
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.04;
        assert!(near(share(&|s| s.service == File), 1.0 / 9.0));
        assert!(near(share(&|s| s.path_text[0].contains("loss=")), 0.5));
        assert!(near(share(&|s| s.path_text[0].contains("loss=ge:")), 0.2));
        assert!(near(share(&|s| s.path_text[2].contains("down")), 0.1));
        assert!(near(share(&|s| s.path_text[2].is_empty()), 0.675));
    }
}
