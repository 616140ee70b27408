//! The graph of functions as SVG: a row for each depth, a box for each node with its mechanisms.

use std::fmt::Write;
use uts_functions::dependencies::{NODES, Node, depth};
use uts_functions::library;
use uts_plot::html::escape;
use uts_plot::svg::{wide, wide_bold};

/// Sizes in pixels.
const FONT: f64 = 12.0;
const LINE: f64 = 15.0;
const PAD: f64 = 8.0;
const BOX_GAP: f64 = 22.0;
const ROW_GAP: f64 = 64.0;
const MARGIN: f64 = 20.0;
/// Names of mechanisms in a line of a box.
const NAMES_A_LINE: usize = 3;

struct Placed {
    node: &'static Node,
    lines: Vec<String>,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The picture.
pub(super) fn svg() -> String {
    let boxes = place();
    let width = boxes.iter().map(|b| b.x + b.width).fold(0.0, f64::max) + MARGIN;
    let height = boxes.iter().map(|b| b.y + b.height).fold(0.0, f64::max) + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{FONT}\">\n\
         <title>Dependencies of transport functions</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for from in &boxes {
        for to in from.node.needs.iter().filter_map(|need| boxes.iter().find(|b| b.node.name == *need)) {
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#999\"/>",
                from.x + from.width / 2.0,
                from.y + from.height,
                to.x + to.width / 2.0,
                to.y
            );
        }
    }
    boxes.iter().for_each(|b| draw(&mut out, b));
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, b: &Placed) {
    let dash = if b.node.in_figure { "" } else { " stroke-dasharray=\"5 3\"" };
    let _ = writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\" fill=\"#f6f6f2\" \
         stroke=\"#333\"{dash}/>",
        b.x, b.y, b.width, b.height
    );
    for (at, line) in b.lines.iter().enumerate() {
        let weight = if at == 0 { " font-weight=\"bold\"" } else { "" };
        let (x, y) = (b.x + b.width / 2.0, b.y + PAD + LINE * (at as f64 + 0.75));
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"{weight}>{}</text>",
            escape(line)
        );
    }
}

/// Width of a line of a box, the first of which is bold, in the widest font that may draw it.
fn line_width(at: usize, line: &str) -> f64 {
    if at == 0 { wide_bold(line, FONT) } else { wide(line, FONT) }
}

/// Each node in the row of its depth, rows in the middle above each other.
fn place() -> Vec<Placed> {
    let deepest = NODES.iter().map(depth).max().unwrap_or(0);
    let mut boxes = Vec::new();
    let mut y = MARGIN;
    let mut widest: f64 = 0.0;
    for row in 0..=deepest {
        let (mut x, mut tallest) = (MARGIN, 0.0_f64);
        for node in NODES.iter().filter(|node| depth(node) == row) {
            let lines = words(node);
            let widths = lines.iter().enumerate().map(|(at, line)| line_width(at, line));
            let width = widths.fold(0.0, f64::max) + 2.0 * PAD;
            let height = lines.len() as f64 * LINE + 2.0 * PAD;
            boxes.push(Placed { node, lines, x, y, width, height });
            x += width + BOX_GAP;
            tallest = tallest.max(height);
        }
        widest = widest.max(x - BOX_GAP);
        let shift = x - BOX_GAP;
        boxes.iter_mut().filter(|b| b.y == y).for_each(|b| b.x -= shift / 2.0);
        y += tallest + ROW_GAP;
    }
    boxes.iter_mut().for_each(|b| b.x += widest / 2.0 + MARGIN / 2.0);
    boxes
}

/// The node's name, and what performs it here.
fn words(node: &Node) -> Vec<String> {
    let mut lines = vec![node.name.to_owned()];
    for function in node.functions {
        let names: Vec<&str> = library::of(*function).iter().map(|m| m.name).collect();
        lines.extend(names.chunks(NAMES_A_LINE).map(|some| some.join(", ")));
    }
    if !node.state.is_empty() {
        lines.push(format!("({})", node.state));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_do_not_overlap_and_all_is_within_the_picture() {
        let boxes = place();
        assert_eq!(boxes.len(), NODES.len());
        for (at, a) in boxes.iter().enumerate() {
            assert!(a.x >= 0.0 && a.y >= 0.0, "{}", a.node.name);
            for b in &boxes[at + 1..] {
                let apart = a.x + a.width < b.x
                    || b.x + b.width < a.x
                    || a.y + a.height < b.y
                    || b.y + b.height < a.y;
                assert!(apart, "{} and {}", a.node.name, b.node.name);
            }
        }
    }

    #[test]
    fn each_line_is_no_wider_than_its_box_in_the_widest_font() {
        for b in place() {
            let mut out = String::new();
            draw(&mut out, &b);
            let texts: Vec<&str> = out.lines().filter(|line| line.starts_with("<text")).collect();
            assert_eq!(texts.len(), b.lines.len(), "{out}");
            for line in texts {
                let text = line.split(['>', '<']).nth(2).expect("a text");
                let is_bold = line.contains("bold");
                let width = if is_bold { wide_bold(text, FONT) } else { wide(text, FONT) };
                assert!(width <= b.width - 2.0 * PAD + 0.1, "{}: {text}: {width}", b.node.name);
            }
        }
    }

    #[test]
    fn every_mechanism_and_every_need_is_drawn() {
        let svg = svg();
        assert!(library::all().all(|m| svg.contains(m.name)));
        let edges: usize = NODES.iter().map(|node| node.needs.len()).sum();
        assert_eq!(svg.matches("<line ").count(), edges);
    }
}
