//! Tables 2.2, 4.2 and 4.3 of the thesis on this machine, outside the reproduction: what a counter
//! of instructions looks at, and what changes the process for good.
//!
//! ```text
//! counted packets BYTES PACKETS [sealed]   single packets; a counter finds their steps by name
//! counted calls KIND WAY CALLS             WAY: 0 named in the source, 1 by slot, 2 by pointers
//! counted figure WAY CALLS                 figure 4.4; WAY: 0 by name, 1 by pointer, 2 by number
//! counted register                         times of register, for congestion controls
//! counted times                            what the timed units measure, in nanoseconds
//! ```

use anyhow::{Context, Result, bail};
use uts_functions::congestion::{self, new_reno::NewReno};
use uts_functions::mechanism::{Consent, Unasked};
use uts_functions::{Function, Mechanism, external};
use uts_papers::paper::Series;
use uts_papers::thesis::stopwatch::{Spread, time};
use uts_papers::thesis::{calls, links, packets};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| -> Result<usize> { Ok(words.get(n).context("a number is missing")?.parse()?) };
    match words.first().map(String::as_str) {
        Some("packets") => {
            let mut ends = packets::Ends::new(words.get(3).is_some())?;
            let steps = ends.carry(number(1)?, number(2)?)?;
            println!("{} packets, {} acknowledgements", steps.receive.len(), steps.ack.len());
        }
        Some("calls") => {
            let kind = calls::KINDS.get(number(1)?).context("no such kind")?;
            let way = calls::Way::ALL.get(number(2)?).context("no such way")?;
            (kind.form)(*way)?(number(3)?.try_into()?);
            println!("{}, {way:?}", kind.name);
        }
        Some("figure") => {
            let calls = calls::CALLERS.get(number(1)?).context("no such way")?;
            println!("{}", calls(number(2)?.try_into()?));
        }
        Some("register") => register()?,
        Some("times") => {
            for (name, series) in [
                ("steps, checked", packets::steps(false)?),
                ("steps, sealed", packets::steps(true)?),
                ("calls", calls::kinds()?),
                ("figure 4.4", calls::figure()?),
                ("instances", links::instances()?),
                ("switches", links::switches()?),
            ] {
                print(name, &series);
            }
        }
        _ => bail!("counted packets|calls|figure|register|times ..."),
    }
    Ok(())
}

fn print(name: &str, series: &Series) {
    println!("{name}");
    for (column, values) in series {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
        println!("  {column:<20} {}", values.join(" "));
    }
}

/// Registers a copy of a congestion control under each number that there is, and says the times in
/// nanoseconds: of each registration, and to find and make the last of them.
fn register() -> Result<()> {
    let mut times = Vec::new();
    for number in external::NUMBERS {
        let name: &'static str = Box::leak(format!("own-{}", letters(number)).into_boxed_str());
        let mut entry = NewReno::INFO;
        (entry.number, entry.name, entry.mandatory) = (number, name, false);
        (entry.consent, entry.facts.unasked) = (Consent::NotNeeded, Unasked::Never);
        let entry: &'static Mechanism = Box::leak(Box::new(entry));
        let (outcome, took) =
            time(|| congestion::register(entry, |params, context| Box::new(NewReno::build(params, context))));
        outcome?;
        times.push(took);
    }
    println!("each, ns: {times:?}");
    let Spread { low, middle, high } = Spread::of(times);
    println!(
        "{} of {}: {middle} ns ({low} to {high})",
        external::NUMBERS.count(),
        Function::Congestion.name()
    );
    Ok(())
}

fn letters(number: u8) -> String {
    [number / 26, number % 26].map(|n| char::from(b'a' + n)).iter().collect()
}
