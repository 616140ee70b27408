//! Tables of comma-separated values (RFC 4180) that grow by fields.

/// A table in memory.
#[derive(Debug)]
pub(crate) struct Csv(csv::Writer<Vec<u8>>);

impl Csv {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut csv = Csv(csv::Writer::from_writer(Vec::new()));
        header.iter().for_each(|name| csv.text(name));
        csv.end_line();
        csv
    }

    /// A field of text, quoted where it must be.
    pub(crate) fn text(&mut self, value: &str) {
        // Nothing fails that is written to memory.
        let _ = self.0.write_field(value);
    }

    /// A number, in the shortest form that is read back as the same; nothing for one that is none.
    pub(crate) fn number(&mut self, value: f64) {
        if value.is_finite() { self.text(&value.to_string()) } else { self.text("") }
    }

    /// A number, or nothing.
    pub(crate) fn optional(&mut self, value: Option<f64>) {
        self.number(value.unwrap_or(f64::NAN));
    }

    /// The end of a line; its fields are as many as those of the header.
    pub(crate) fn end_line(&mut self) {
        let written = self.0.write_record(None::<&[u8]>);
        debug_assert!(written.is_ok(), "{written:?}");
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap_or_default()
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
        let text = String::from_utf8(csv.into_bytes()).unwrap();
        assert_eq!(text, "a,b\n\"ge:0.05,4\",0.1\n\"say \"\"x\"\"\",\n");
    }
}
