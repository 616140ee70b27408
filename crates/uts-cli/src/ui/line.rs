//! Progress of a copy, as a line that fits the terminal.
//!
//! The share, the rate and the time that is left come first, then the name of the file, cut in its
//! middle. What else there is to say is added as far as there is room, in the order of
//! [`Extra::ALL`]. Columns are as wide as their longest text, so that nothing moves as figures
//! change.

use super::Sample;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use uts::printable;
use uts_units::show;

/// The narrowest a name is shown, and the narrowest it is cut to for something else to be said.
const NAME_MIN: usize = 8;
const NAME_FAIR: usize = 20;
/// The bar, where there is room for it.
const BAR_MIN: usize = 10;
const BAR_MAX: usize = 30;
const BETWEEN: &str = "  ";

/// Parts that are said where there is room.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extra {
    Bytes,
    Files,
    Bar,
    RoundTrip,
    Loss,
    Profile,
}

impl Extra {
    /// From what is missed most to what is missed least.
    const ALL: [Extra; 6] =
        [Extra::Bytes, Extra::Files, Extra::Bar, Extra::RoundTrip, Extra::Loss, Extra::Profile];
}

/// The line, of at most `columns` columns (from 40 on); `left` is the time that is left, if it is
/// known.
pub fn progress(sample: &Sample, left: Option<Duration>, columns: usize) -> String {
    let t = &sample.telemetry;
    let share = if sample.total > 0 { sample.bytes as f64 / sample.total as f64 } else { 0.0 }.min(1.0);
    let name = printable::line(&sample.name, usize::MAX);
    let text = |extra: Extra| match extra {
        Extra::Bytes if sample.total > 0 => {
            format!("{:>8} of {:>8}", show::bytes(sample.bytes), show::bytes(sample.total))
        }
        Extra::Files if sample.files_total > 1 => {
            let (total, width) = (sample.files_total, sample.files_total.to_string().len());
            format!("{:>width$}/{total} files", sample.files)
        }
        Extra::Bar if sample.total > 0 => " ".repeat(BAR_MIN),
        Extra::RoundTrip => format!("RTT {:>6.1} ms", t.rtt_ms),
        Extra::Loss => format!("loss {:>5.2} %", t.loss * 100.0),
        Extra::Profile if !t.profile.is_empty() => format!("[{}]", printable::line(&t.profile, 60)),
        _ => String::new(),
    };
    let [percent, rate, left] = [
        format!("{:>3.0} %", (share * 100.0).floor()),
        format!("{:>12}", show::bits_per_second(t.rate_bps)),
        format!("{:>7}", left.map_or_else(|| "-".to_owned(), time_left)),
    ];
    let needed = [&percent, &rate, &left].map(|text| BETWEEN.len() + text.width()).iter().sum::<usize>();
    let mut room = columns.saturating_sub(needed);
    let fair = name.width().min(NAME_FAIR);
    let mut extras = Vec::new();
    for extra in Extra::ALL {
        let width = text(extra).width();
        if width > 0 && room >= fair + BETWEEN.len() + width {
            room -= BETWEEN.len() + width;
            extras.push(extra);
        }
    }
    let shown = if room < NAME_MIN.min(name.width()) { String::new() } else { cut(&name, room) };
    room -= shown.width().min(room);
    let bar = bar(share, (BAR_MIN + room).min(BAR_MAX));
    let said = |extra: Extra| if extras.contains(&extra) { text(extra) } else { String::new() };
    let bar = if extras.contains(&Extra::Bar) { bar } else { String::new() };
    let parts = [
        shown,
        bar,
        percent,
        said(Extra::Bytes),
        said(Extra::Files),
        rate,
        left,
        said(Extra::RoundTrip),
        said(Extra::Loss),
        said(Extra::Profile),
    ];
    let line = parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>();
    fitted(&line.join(BETWEEN), columns)
}

/// Text that is cut in its middle to fit so many columns.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let tail_max = columns.saturating_sub(1) / 2;
    let head = fitted(text, columns.saturating_sub(1) - tail_max);
    let mut tail: Vec<char> = Vec::new();
    let mut width = 0;
    for c in text.chars().rev() {
        width += c.width().unwrap_or(0);
        if width > tail_max {
            break;
        }
        tail.push(c);
    }
    format!("{head}…{}", tail.iter().rev().collect::<String>())
}

/// As much of the beginning as fits so many columns.
fn fitted(text: &str, columns: usize) -> String {
    let mut width = 0;
    let fits = |c: &char| {
        width += c.width().unwrap_or(0);
        width <= columns
    };
    text.chars().take_while(fits).collect()
}

/// A bar of so many columns, to an eighth of a column.
fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share * columns as f64 * 8.0) as usize;
    let mut bar = "█".repeat((eighths / 8).min(columns));
    if eighths / 8 < columns {
        bar.push_str(PARTS[eighths % 8]);
    }
    let rest = columns.saturating_sub(bar.width());
    bar + &" ".repeat(rest)
}

/// `12 s`, `2:05`, `1:02:03`; a day or more is not worth a figure.
fn time_left(left: Duration) -> String {
    let s = left.as_secs();
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{}:{:02}", s / 60, s % 60),
        3600..86_400 => format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60),
        _ => "> 1 d".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Telemetry;
    use proptest::prelude::*;

    fn sample(name: &str) -> Sample {
        let telemetry = Telemetry {
            rate_bps: 48_123_000.0,
            rtt_ms: 40.2,
            loss: 0.0512,
            profile: "cubic, no fec".into(),
            ..Telemetry::default()
        };
        let (bytes, total) = (28_800_000, 64_000_000);
        Sample { bytes, total, files: 3, files_total: 12, name: name.into(), telemetry, ..Sample::default() }
    }

    #[test]
    fn the_line_says_as_much_as_there_is_room_for() {
        let left = Some(Duration::from_secs(75));
        let shown = |columns| progress(&sample("ubuntu-24.04.1-desktop-amd64.iso"), left, columns);
        assert_eq!(shown(39), "ubun….iso   45 %   48.1 Mbit/s     1:15");
        assert_eq!(
            shown(79),
            "ubuntu-24.04.…top-amd64.iso   45 %   28.8 MB of  64.0 MB   48.1 Mbit/s     1:15"
        );
        assert_eq!(
            shown(119),
            "ubuntu-24.04.…top-amd64.iso  ████▌        45 %   28.8 MB of  64.0 MB   3/12 files   \
             48.1 Mbit/s     1:15  RTT   40.2 ms"
        );
    }

    #[test]
    fn a_name_is_cut_in_its_middle() {
        assert_eq!(cut("photos/2024/a-long-name.jpeg", 15), "photos/…me.jpeg");
        assert_eq!(cut("short", 15), "short");
        assert_eq!(cut("你好你好你好", 7), "你…好");
    }

    #[test]
    fn the_time_left_is_short() {
        let shown = [0, 59, 60, 3_599, 3_600, 86_399, 1 << 40].map(|s| time_left(Duration::from_secs(s)));
        assert_eq!(shown, ["0 s", "59 s", "1:00", "59:59", "1:00:00", "23:59:59", "> 1 d"]);
    }

    proptest! {
        /// Whatever is copied, and whatever the figures are.
        #[test]
        fn a_line_never_wraps(
            name in any::<String>(), columns in 40usize..200, bytes: u64, total: u64, files: u64,
            files_total: u64, rate_bps in 0.0f64..1e14, rtt_ms in 0.0f64..1e7, left_s in proptest::option::of(any::<u64>()),
        ) {
            let telemetry = Telemetry { rate_bps, rtt_ms, loss: 1.0, ..sample("").telemetry };
            let sample = Sample { bytes, total, files, files_total, name, telemetry, ..Sample::default() };
            let line = progress(&sample, left_s.map(Duration::from_secs), columns);
            prop_assert!(line.width() <= columns, "{} in {columns}: {line}", line.width());
            prop_assert!(line.contains('%') && line.contains("bit/s"), "{line}");
        }
    }
}
