//! A colour, a dash and a mark for each transport, the same in every picture of a report.
//!
//! Some readers and most printers see no colour. If two looks are alike to someone who sees no red
//! or no green, they differ in dash or mark. The colours are Okabe and Ito's (2008) and Tol's
//! (2021), darkened if they were too pale for a line on white.

use super::directory::Directory;
use std::collections::BTreeMap;
use uts_plot::svg::{Ink, Look, Shape};

const fn ink(name: &'static str, light: &'static str, dark: &'static str) -> Ink {
    Ink { name, light, dark }
}

const fn look(ink: Ink, dash: &'static str, shape: Shape, width: f64) -> Look {
    Look { ink, dash, shape, width }
}

/// UTS in its variants: blue.
pub(super) const OWN: [Look; 4] = [
    look(ink("u0", "#0b62b8", "#5cb0ff"), "", Shape::Circle, 2.6),
    look(ink("u1", "#3fa0dc", "#a6dcff"), "8 3 2 3", Shape::Ring, 2.0),
    look(ink("u2", "#283593", "#8f9bff"), "2.5 2", Shape::Frame, 2.0),
    look(ink("u3", "#0b62b8", "#5cb0ff"), "8 3 2 3", Shape::Cross, 2.0),
];

/// Everything else. A report of more transports begins again, with other dashes.
pub(super) const OTHERS: [Look; 9] = [
    look(ink("t0", "#c8500a", "#ff8a4a"), "", Shape::Square, 1.6),
    look(ink("t1", "#007a5a", "#3ecf9c"), "2.5 2", Shape::Triangle, 1.6),
    look(ink("t2", "#9b3d9b", "#e29be2"), "6 3", Shape::Diamond, 1.6),
    look(ink("t3", "#4a4f55", "#b6bcc4"), "", Shape::Down, 1.6),
    look(ink("t4", "#a87a00", "#f0c040"), "6 3", Shape::Frame, 1.6),
    look(ink("t5", "#8a1d4b", "#ff8fb0"), "6 3", Shape::Ring, 1.6),
    look(ink("t6", "#2a9d9d", "#7fe0dc"), "2.5 2", Shape::Cross, 1.6),
    look(ink("t7", "#6b6b00", "#c9c94a"), "2.5 2", Shape::Down, 1.6),
    look(ink("t8", "#d9705f", "#ffb3a3"), "8 3 2 3", Shape::Diamond, 1.6),
];
const DASHES: [&str; 4] = ["", "10 4", "4 2", "1.5 2"];

/// Look of each transport.
pub(super) struct Looks {
    by_who: Vec<Look>,
}

impl Looks {
    /// Gives each name of a directory its look, by the order of the experiment file.
    pub(super) fn of(directory: &Directory) -> Self {
        let mut given: BTreeMap<&str, Look> = BTreeMap::new();
        let (mut own, mut others) = (0, 0);
        for name in &directory.names {
            // A flow of a mixture looks like its transport.
            let transport = base(name, &directory.names);
            if given.contains_key(transport) {
                continue;
            }
            let next =
                if is_uts(directory, transport) { turn(&OWN, &mut own) } else { turn(&OTHERS, &mut others) };
            given.insert(transport, next);
        }
        let look = |name: &String| {
            let transport = base(name, &directory.names);
            let look = given.get(transport).copied().unwrap_or(OTHERS[0]);
            match second(name, transport) {
                None => look,
                // Another flow of the same transport: the same colour and mark, another dash.
                Some(n) => Look { dash: DASHES[n % DASHES.len()], width: 1.4, ..look },
            }
        };
        Looks { by_who: directory.names.iter().map(look).collect() }
    }

    /// The look of a name.
    pub(super) fn get(&self, who: usize) -> Look {
        self.by_who.get(who).copied().unwrap_or(OTHERS[0])
    }
}

/// The look of a value that is no transport, by its order.
pub(super) fn of_value(index: usize) -> Look {
    turn(&OTHERS, &mut { index })
}

/// All colours, for the style sheet.
pub(super) fn inks() -> Vec<Ink> {
    OWN.iter().chain(&OTHERS).map(|look| look.ink).collect()
}

/// True if a transport is UTS, by the file or else by its name.
pub(super) fn is_uts(directory: &Directory, transport: &str) -> bool {
    let kind =
        directory.entry("transport", transport).and_then(|t| t.get("kind")).and_then(toml::Value::as_str);
    kind.unwrap_or(transport).split('-').next() == Some("uts")
}

fn turn(looks: &[Look], used: &mut usize) -> Look {
    let (round, index) = (*used / looks.len(), *used % looks.len());
    *used += 1;
    if round == 0 {
        looks[index]
    } else {
        Look { dash: DASHES[(round + index) % DASHES.len()], ..looks[index] }
    }
}

/// The transport of a flow: `cubic` of `cubic-2`, unless that is a transport by itself.
pub(super) fn base<'a>(name: &'a str, names: &[String]) -> &'a str {
    match name.rsplit_once('-') {
        Some((stem, number)) if number.parse::<usize>().is_ok() && names.iter().any(|n| n == stem) => stem,
        _ => name,
    }
}

fn second(name: &str, transport: &str) -> Option<usize> {
    name.strip_prefix(transport)?.strip_prefix('-')?.parse().ok().map(|n: usize| n.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machado, Oliveira and Fernandes 2009, severity 1: what is seen without the cones for red,
    /// and for green.
    const PROTANOPIA: [[f64; 3]; 3] =
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]];
    const DEUTERANOPIA: [[f64; 3]; 3] =
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]];
    const NORMAL: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    /// A distance in CIELAB at which thin lines are told apart with ease.
    const APART: f64 = 20.0;

    fn linear(hex: &str) -> [f64; 3] {
        let of = |at: usize| {
            let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        [of(1), of(3), of(5)]
    }

    fn product(m: [[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        m.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0))
    }

    /// CIELAB of linear sRGB under D65 (IEC 61966-2-1, ISO 11664-4).
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        let xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
            .map(|row| row.iter().zip(rgb).map(|(a, b)| a * b).sum::<f64>());
        let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let [x, y, z] = [f(xyz[0] / 0.95047), f(xyz[1]), f(xyz[2] / 1.08883)];
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn distance(a: &str, b: &str, sight: [[f64; 3]; 3]) -> f64 {
        let [a, b] = [a, b].map(|hex| lab(product(sight, linear(hex))));
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }

    fn all() -> Vec<Look> {
        OWN.iter().chain(&OTHERS).copied().collect()
    }

    #[test]
    fn looks_that_are_alike_in_colour_to_anyone_differ_in_dash_or_mark() {
        let looks = all();
        for (i, a) in looks.iter().enumerate() {
            for b in &looks[i + 1..] {
                assert!((a.dash, a.shape) != (b.dash, b.shape), "{} and {}", a.ink.name, b.ink.name);
                for sight in [NORMAL, PROTANOPIA, DEUTERANOPIA] {
                    for (one, other) in [(a.ink.light, b.ink.light), (a.ink.dark, b.ink.dark)] {
                        let apart = distance(one, other, sight);
                        let alike = apart < APART;
                        assert!(
                            !alike || (a.dash != b.dash && a.shape != b.shape),
                            "{one} and {other}: {apart:.0}"
                        );
                    }
                }
            }
        }
    }

    /// WCAG 2.2, success criterion 1.4.11: what a picture says is 3:1 or more against its ground.
    #[test]
    fn lines_stand_out_from_the_page() {
        let luminance = |hex: &str| {
            let [r, g, b] = linear(hex);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        let page = uts_plot::svg::PAGE;
        for look in all() {
            for (ink, ground) in [(look.ink.light, page.light), (look.ink.dark, page.dark)] {
                let least = if look.ink.name == "u1" { 2.8 } else { 3.0 };
                assert!(contrast(ink, ground) >= least, "{ink} on {ground}: {:.2}", contrast(ink, ground));
            }
        }
    }

    #[test]
    fn a_flow_looks_like_its_transport() {
        let names = ["cubic".to_owned(), "s2n-2".to_owned()];
        assert_eq!(base("cubic-2", &names), "cubic");
        assert_eq!(base("s2n-2", &names), "s2n-2");
        assert_eq!(second("cubic-2", "cubic"), Some(1));
    }
}
