//! `uts-lab probes`.

use super::print_line;
use crate::probes::budget::{Budget, Published, Row, Spread};
use crate::probes::measure::{Cost, Measured, measure};
use crate::probes::published::MACHINES;
use anyhow::Result;
use clap::Args;

/// Say where the time of a packet goes, from one application to another
///
/// Single packets of 1 byte and of 1400 bytes go over loopback. Each passes twenty points. The time
/// between two of them is printed beside that of two machines of 1995: tables 3.3 and 3.4 of A.
/// Richards, "The Universal Transport System". docs/lab.md says what each stage is.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Packets of each size
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    packets: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures, and prints the budgets.
///
/// # Errors
/// No packets can be sent over loopback, or standard output is lost.
pub fn run(arguments: &Arguments) -> Result<()> {
    let measured = measure(arguments.packets as usize)?;
    if arguments.json {
        print_line(&serde_json::to_string(&measured)?)?;
        return Ok(());
    }
    lines(&measured).iter().try_for_each(|line| print_line(line.trim_end()))?;
    Ok(())
}

fn lines(measured: &Measured) -> Vec<String> {
    let mut lines = vec![
        "Median (quartiles) of the time between two points of a packet, in us, and its share of all stages;"
            .to_owned(),
        "beside it the averages of the thesis, tables 3.3 (i486) and 3.4 (DEC 5000)".to_owned(),
    ];
    for budget in &measured.budgets {
        lines.push(String::new());
        lines.push(title(budget));
        lines.push(heading());
        for (n, row) in budget.rows.iter().enumerate() {
            // The receiver's stages begin behind the wire.
            if n > 0 && budget.rows[n - 1].to != row.from {
                lines.push("         receiver".to_owned());
            } else if n == 0 {
                lines.push("         sender".to_owned());
            }
            lines.push(line(row));
        }
        lines.push(sums(budget));
    }
    lines.push(String::new());
    lines.extend(measured.probes.iter().map(cost));
    lines
}

fn title(budget: &Budget) -> String {
    let what = match budget.bytes {
        0 => "acknowledgements".to_owned(),
        1 => "packets of 1 byte".to_owned(),
        bytes => format!("packets of {bytes} bytes"),
    };
    let left_out = match budget.left_out {
        0 => String::new(),
        n => format!(", {n} left out, beside which others went"),
    };
    let Spread { median, low, high } = budget.whole_us;
    format!(
        "{} {what}{left_out}; from the first point to the last {median:.1} ({low:.1} to {high:.1}) us",
        budget.packets
    )
}

fn heading() -> String {
    let machines: String =
        MACHINES.iter().map(|machine| format!(" {:>10} {:>7}", machine.name, "")).collect();
    format!("{:<8} {:<22}{:>8} {:<17}{:>7}{machines}", "points", "stage", "here", "", "")
}

fn line(row: &Row) -> String {
    let Spread { median, low, high } = row.us;
    let thesis: String = row
        .thesis
        .iter()
        .map(|Published { us, share, .. }| format!(" {us:>10.2} {:>5.1} %", share * 100.0))
        .collect();
    let points = format!("{} - {}", row.from, row.to);
    let spread = format!("({low:.2} to {high:.2})");
    format!("{points:<8} {:<22}{median:>8.2} {spread:<17}{:>5.1} %{thesis}", row.stage, row.share * 100.0)
}

fn sums(budget: &Budget) -> String {
    let of = |n: usize| -> f64 { budget.rows.iter().filter_map(|row| row.thesis.get(n)).map(|p| p.us).sum() };
    let thesis: String = (0..MACHINES.len()).map(|n| format!(" {:>10.2} {:>7}", of(n), "")).collect();
    format!("{:<8} {:<22}{:>8.2} {:<17}{:>7}{thesis}", "", "all stages", budget.stages_us, "", "")
}

fn cost(cost: &Cost) -> String {
    let Cost { bytes, without_us, with_us } = cost;
    format!(
        "the probes themselves, {bytes} B: {:.2} us with all points, {:.2} us with the first and the last alone \
         ({:+.1} %)",
        with_us.median,
        without_us.median,
        cost.growth() * 100.0
    )
}
