//! Costs as people write them, in the manner of a path:
//! `copy_in=91us+1.229ms/kB rate=10mbit send_buffers=1 waiting=busy`. A mechanism is named with its
//! function: `protection/aes-128-gcm=2us+15us/kB`. A second cost, after a comma, is that of
//! receiving.

use super::{Cost, Costs, Load, MechanismCost, Waiting, mechanisms};
use core::str::FromStr;
use core::time::Duration;

const SETTINGS: &str = "copy_in, copy_out, receive, processes, ipc, rate, send_buffers, receive_buffers, latency, waiting, \
     send_queue, receive_queue, load, and mechanisms, as protection/aes-128-gcm";

/// The longest time that is read: an hour. Sums of costs therefore stay in range.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// The most buffers, and places in queues.
const ROOM_MAX: u32 = 1_000_000;
/// The most processes.
const PROCESSES_MAX: u32 = 64;
/// The range of a factor of load.
const FACTOR: core::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Error in the text of costs: where, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct CostTextError {
    /// The setting as written.
    pub at: String,
    /// Fault of the text there, in words.
    pub reason: String,
}

impl FromStr for Costs {
    type Err = CostTextError;

    /// Reads settings separated by spaces.
    fn from_str(text: &str) -> Result<Self, CostTextError> {
        let mut costs = Costs::default();
        for setting in text.split_whitespace() {
            let wrong = |reason: String| CostTextError { at: setting.to_owned(), reason };
            let Some((key, value)) = setting.split_once('=') else {
                return Err(wrong("expected SETTING=VALUE".to_owned()));
            };
            costs.read(key, value).map_err(wrong)?;
        }
        let wrong = |e: super::CostError| CostTextError { at: e.key.to_owned(), reason: e.reason.to_owned() };
        costs.check().map_err(wrong)?;
        Ok(costs)
    }
}

impl Costs {
    fn read(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "copy_in" => self.copy_in = cost(value)?,
            "copy_out" => self.copy_out = cost(value)?,
            "receive" => self.receive = cost(value)?,
            "processes" => self.processes = whole(value, PROCESSES_MAX)?,
            "ipc" => self.ipc = cost(value)?,
            "rate" => {
                let rate = uts_units::rate(value).map_err(|e| e.about(value, "a rate, as 10mbit"))?;
                self.rate_bps = Some(rate);
            }
            "send_buffers" => self.send_buffers = Some(room(value)?),
            "receive_buffers" => self.receive_buffers = Some(room(value)?),
            "send_queue" => self.send_queue = Some(room(value)?),
            "receive_queue" => self.receive_queue = Some(room(value)?),
            "latency" => self.latency = time(value)?,
            "waiting" => self.waiting = waiting(value)?,
            "load" => self.load = value.split(',').map(load).collect::<Result<_, _>>()?,
            _ if key.contains('/') => {
                let (function, number) = mechanisms::read(key)?;
                let (send, receive) = value.split_once(',').unwrap_or((value, value));
                let (send, receive) = (cost(send)?, cost(receive)?);
                self.mechanisms.push(MechanismCost { function, number, send, receive });
            }
            _ => return Err(format!("unknown setting; there are {SETTINGS}")),
        }
        Ok(())
    }
}

fn time(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "a time with its unit, as 20us";
    let time = uts_units::time(text).map_err(|error| error.about(text, EXPECTED))?;
    if time > TIME_MAX { Err(format!("{text} is more than an hour")) } else { Ok(time) }
}

/// `TIME`, `TIME/kB` or `TIME+TIME/kB`.
fn cost(text: &str) -> Result<Cost, String> {
    const PER: &str = "/kB";
    let (packet, kilobyte) = match text.split_once('+') {
        Some((packet, kilobyte)) => (Some(packet), Some(kilobyte)),
        None if text.ends_with(PER) => (None, Some(text)),
        None => (Some(text), None),
    };
    let kilobyte = kilobyte.map(|text| match text.strip_suffix(PER) {
        Some(text) => time(text),
        None => Err(format!("expected TIME, TIME/kB or TIME+TIME/kB, as 91us+1.2ms/kB, not {text}")),
    });
    Ok(Cost {
        packet: packet.map(time).transpose()?.unwrap_or_default(),
        kilobyte: kilobyte.transpose()?.unwrap_or_default(),
    })
}

fn room(text: &str) -> Result<u32, String> {
    whole(text, ROOM_MAX)
}

fn whole(text: &str, most: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a whole number from 1 to {most}"))
}

/// `busy`, `interrupts`, or `interrupts:TIME`.
fn waiting(text: &str) -> Result<Waiting, String> {
    match text.split_once(':') {
        None if text == "busy" => Ok(Waiting::Busy),
        None if text == "interrupts" => Ok(Waiting::Interrupts(Duration::ZERO)),
        Some(("interrupts", cost)) => Ok(Waiting::Interrupts(time(cost)?)),
        _ => Err("expected busy, interrupts, or interrupts:TIME, as interrupts:5us".to_owned()),
    }
}

/// `TIME:FACTOR`.
fn load(text: &str) -> Result<Load, String> {
    let expected = || "expected TIME:FACTOR, or several, as 2s:5,4s:1".to_owned();
    let (at, factor) = text.split_once(':').ok_or_else(expected)?;
    let number = factor.parse::<f64>().ok().filter(|factor| FACTOR.contains(factor));
    let factor = number.ok_or_else(|| format!("{factor} is not a factor from 0.001 to 1000"))?;
    Ok(Load { at: time(at)?, factor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_functions::{Function, library};

    #[test]
    fn costs_are_read() {
        let text = "copy_in=91us+1.229ms/kB copy_out=2ms receive=30ns/kB processes=3 ipc=1ms+10us/kB rate=10mbit send_buffers=1 \
                    receive_buffers=2 latency=85us waiting=interrupts:5us send_queue=16 receive_queue=50 \
                    load=2s:5,4s:0.5 protection/aes-128-gcm=2us+15us/kB fec/xor=20us,5us+1us/kB";
        let (us, ms) = (Duration::from_micros, Duration::from_millis);
        let expected = Costs {
            copy_in: Cost { packet: us(91), kilobyte: us(1229) },
            copy_out: Cost::fixed(ms(2)),
            receive: Cost { packet: Duration::ZERO, kilobyte: Duration::from_nanos(30) },
            processes: 3,
            ipc: Cost { packet: ms(1), kilobyte: us(10) },
            rate_bps: Some(10_000_000),
            send_buffers: Some(1),
            receive_buffers: Some(2),
            latency: us(85),
            waiting: Waiting::Interrupts(us(5)),
            send_queue: Some(16),
            receive_queue: Some(50),
            load: vec![Load { at: ms(2000), factor: 5.0 }, Load { at: ms(4000), factor: 0.5 }],
            mechanisms: vec![
                MechanismCost::both(
                    Function::Protection,
                    library::by_name(Function::Protection, "aes-128-gcm").expect("in the library").number,
                    Cost { packet: us(2), kilobyte: us(15) },
                ),
                MechanismCost {
                    function: Function::Fec,
                    number: library::by_name(Function::Fec, "xor").expect("in the library").number,
                    send: Cost::fixed(us(20)),
                    receive: Cost { packet: us(5), kilobyte: us(1) },
                },
            ],
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Costs::default()));
        assert_eq!("waiting=busy".parse::<Costs>().expect("busy").waiting, Waiting::Busy);
    }

    #[test]
    fn what_is_wrong_is_said_with_what_was_expected() {
        for (text, expected) in [
            ("copy_on=2ms", "copy_on=2ms: unknown setting; there are copy_in,"),
            ("copy_in", "copy_in: expected SETTING=VALUE"),
            ("copy_in=2", "copy_in=2: "),
            ("copy_in=2ms+3us", "expected TIME, TIME/kB or TIME+TIME/kB"),
            ("copy_in=2h", "copy_in=2h: "),
            ("latency=7200s", "latency=7200s: 7200s is more than an hour"),
            ("send_buffers=0", "send_buffers=0: expected a whole number from 1"),
            ("processes=0", "processes=0: expected a whole number from 1 to 64"),
            ("ipc=3", "ipc=3: "),
            ("waiting=lazily", "expected busy, interrupts"),
            ("load=2s", "expected TIME:FACTOR"),
            ("load=2s:0", "0 is not a factor from"),
            ("load=2s:2,1s:1", "load: must be in the order of time"),
            (
                "protection/aes-128-gmc=2us",
                "protection/aes-128-gmc=2us: there is no mechanism `protection/aes-128-gmc`; did you mean \
                 `protection/aes-128-gcm`?",
            ),
            ("detection/quantum=2us", "there is no mechanism `detection/quantum`; detection has none, "),
            ("magic/wand=2us", "expected FUNCTION/MECHANISM, of "),
            ("fec/xor=2us,", "fec/xor=2us,: "),
            ("fec/xor=2us fec/xor=3us", "fec: a mechanism has one cost, and is here twice"),
        ] {
            let error = text.parse::<Costs>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
