//! A picture with its words and its data, as the page shows it.

use super::quantity::three_digits;
use serde::Serialize;
use std::fmt::Write;
use uts_plot::html::escape;
use uts_plot::svg::Look;

/// One figure of the page.
pub(super) struct Chart {
    /// Title above the picture.
    pub title: String,
    /// The picture.
    pub svg: String,
    /// Text without which it cannot be read.
    pub caption: String,
    /// Values that it was drawn from.
    pub data: Data,
    /// Series to look at more closely.
    pub zoom: Option<Zoom>,
    /// Sentences below it, numbered.
    pub notes: Vec<String>,
    /// It needs the width of the page.
    pub is_wide: bool,
}

/// A table of values.
#[derive(Clone, Debug, Default)]
pub(super) struct Data {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Datum>>,
    /// It is short enough to be read.
    pub is_shown: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Datum {
    Text(String),
    Number(f64),
    Missing,
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Datum::Text(text.into())
    }
}

impl From<String> for Datum {
    fn from(text: String) -> Self {
        Datum::Text(text)
    }
}

impl From<f64> for Datum {
    fn from(number: f64) -> Self {
        if number.is_finite() { Datum::Number(number) } else { Datum::Missing }
    }
}

impl From<Option<f64>> for Datum {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Datum::Missing, Datum::from)
    }
}

impl Data {
    pub(super) fn new<const N: usize>(columns: [&str; N]) -> Self {
        Data { columns: columns.map(str::to_owned).into(), rows: Vec::new(), is_shown: true }
    }

    /// As CSV, numbers in full.
    pub(super) fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let field = |datum: &Datum| match datum {
            Datum::Text(text) => text.clone(),
            Datum::Number(number) => number.to_string(),
            Datum::Missing => String::new(),
        };
        // Into memory, rows of equal length: nothing can fail.
        let _ = writer.write_record(&self.columns);
        for row in &self.rows {
            let _ = writer.write_record(row.iter().map(field));
        }
        String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
    }

    /// As a table, numbers to three digits.
    pub(super) fn html(&self) -> String {
        let is_number = |i: usize| self.rows.iter().any(|row| matches!(row.get(i), Some(Datum::Number(_))));
        let class = |i: usize| if is_number(i) { " class=\"number\"" } else { "" };
        let mut html = String::from("<table><thead><tr>");
        for (i, column) in self.columns.iter().enumerate() {
            let _ = write!(html, "<th{}>{}</th>", class(i), escape(column));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (i, datum) in row.iter().enumerate() {
                let text = match datum {
                    Datum::Text(text) => escape(text),
                    Datum::Number(number) => three_digits(*number),
                    Datum::Missing => "–".into(),
                };
                let _ = write!(html, "<td{}>{text}</td>", class(i));
            }
            html.push_str("</tr>");
        }
        html + "</tbody></table>"
    }
}

/// Series over time, for the page's script.
#[derive(Debug, Default, Serialize)]
pub(super) struct Zoom {
    pub panels: Vec<ZoomPanel>,
    /// Instants of exchanges.
    pub marks: Vec<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct ZoomPanel {
    pub label: String,
    pub series: Vec<ZoomSeries>,
}

#[derive(Debug, Serialize)]
pub(super) struct ZoomSeries {
    pub name: String,
    /// The name of its colour.
    pub ink: &'static str,
    pub dash: Vec<f64>,
    /// `line`, `step`, `dots`, `ring` or `cross`.
    pub style: &'static str,
    pub t: Vec<f64>,
    pub v: Vec<f64>,
}

impl ZoomSeries {
    pub(super) fn new(name: &str, look: Look, style: &'static str, points: &[(f64, f64)]) -> Self {
        let dash = look.dash.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let fewer = |value: f64, digits: f64| (value * digits).round() / digits;
        // Five digits of a value: more than a screen has pixels.
        let digits = points.iter().map(|p| p.1.abs()).fold(0.0, f64::max).max(1e-9).log10().ceil();
        let scale = 10f64.powf(5.0 - digits);
        let (t, v) = points.iter().map(|p| (fewer(p.0, 1e5), fewer(p.1, scale))).unzip();
        ZoomSeries { name: name.into(), ink: look.ink.name, dash, style, t, v }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_csv_in_full_and_html_in_short() {
        let mut data = Data::new(["transport", "mean, Mbit/s"]);
        data.rows.push(vec!["a \"b\"".into(), 94.123_456.into()]);
        data.rows.push(vec!["<c>".into(), f64::NAN.into()]);
        assert_eq!(data.csv(), "transport,\"mean, Mbit/s\"\n\"a \"\"b\"\"\",94.123456\n<c>,\n");
        let html = data.html();
        assert!(
            html.contains("<td>&lt;c&gt;</td><td class=\"number\">–</td>") && html.contains(">94.1<"),
            "{html}"
        );
    }
}
