//! Lines of comma-separated values (RFC 4180).

use std::fmt::Write;

/// A table that grows by fields.
#[derive(Debug)]
pub(crate) struct Csv {
    text: String,
    at_start: bool,
}

impl Csv {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut csv = Csv { text: String::new(), at_start: true };
        header.iter().for_each(|name| csv.text(name));
        csv.end_line();
        csv
    }

    fn separate(&mut self) {
        if !self.at_start {
            self.text.push(',');
        }
        self.at_start = false;
    }

    /// A field of text, quoted where it must be.
    pub(crate) fn text(&mut self, value: &str) {
        self.separate();
        if value.contains([',', '"', '\n', '\r']) {
            let _ = write!(self.text, "\"{}\"", value.replace('"', "\"\""));
        } else {
            self.text.push_str(value);
        }
    }

    /// A number, in the shortest form that is read back as the same; nothing for one that is none.
    pub(crate) fn number(&mut self, value: f64) {
        self.separate();
        if value.is_finite() {
            let _ = write!(self.text, "{value}");
        }
    }

    /// A number, or nothing.
    pub(crate) fn optional(&mut self, value: Option<f64>) {
        self.number(value.unwrap_or(f64::NAN));
    }

    pub(crate) fn end_line(&mut self) {
        self.text.push('\n');
        self.at_start = true;
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let mut csv = Csv::new(&["a", "b"]);
        csv.text("ge:0.05,4");
        csv.number(0.1);
        csv.end_line();
        csv.text("say \"x\"");
        csv.optional(None);
        csv.end_line();
        assert_eq!(csv.into_text(), "a,b\n\"ge:0.05,4\",0.1\n\"say \"\"x\"\"\",\n");
    }
}
