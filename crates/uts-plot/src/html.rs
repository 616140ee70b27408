//! Parts that both pages are made with.

const HEAD: &str = include_str!("../assets/head.html");
const SCRIPTS: &str = include_str!("../assets/scripts.html");
const CSS: &str = include_str!("../assets/report.css");
const UPLOT_CSS: &str = include_str!("../assets/uplot/uPlot.min.css");
const UPLOT_JS: &str = include_str!("../assets/uplot/uPlot.iife.min.js");

/// A page, for the most part.
pub struct Document<'a> {
    /// With `{{name}}` for values.
    pub template: &'a str,
    /// Its title, as plain text.
    pub title: &'a str,
    /// Its own script.
    pub js: &'a str,
    /// The data for that, as JSON.
    pub data: &'a str,
}

impl Document<'_> {
    /// The whole page, with everything that it needs inlined, and these values for the rest of its
    /// template.
    pub fn page(&self, values: &[(&str, &str)]) -> String {
        let title = escape(self.title);
        let head = fill(HEAD, &[("title", &title), ("uplot_css", UPLOT_CSS), ("css", CSS)]);
        let data = script_safe(self.data);
        let scripts = fill(SCRIPTS, &[("data", &data), ("uplot_js", UPLOT_JS), ("js", self.js)]);
        let mut all =
            vec![("title", title.as_str()), ("head", head.trim_end()), ("scripts", scripts.trim_end())];
        all.extend_from_slice(values);
        fill(self.template, &all)
    }
}

/// Replaces each `{{name}}`; what is put in is not looked at again.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut parts = template.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("}}") {
            Some((name, rest)) => {
                filled.push_str(values.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value));
                filled.push_str(rest);
            }
            None => filled.push_str(part),
        }
    }
    filled
}

/// Text that is safe inside elements and quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // As on a terminal: what a peer has said is not to turn the text around it.
            c if c == '\n' || uts_units::printable::is_plain(c) => escaped.push(c),
            c => escaped.extend(c.escape_default()),
        }
    }
    escaped
}

/// JSON that cannot end the script element that it is in, nor begin another. `<` occurs only in
/// strings, where it may be written so.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Day and minute in UTC, by the civil calendar (Hinnant, days_from_civil inverted).
pub fn date(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (unix_s % 86_400 / 3_600, unix_s % 3_600 / 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// The text with a capital letter.
pub fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_767_225_540), "2025-12-31 23:59 UTC");
    }

    #[test]
    fn what_is_filled_in_is_not_a_template() {
        assert_eq!(fill("a{{x}}b{{y}}c{{z}}", &[("x", "{{y}}"), ("y", "2")]), "a{{y}}b2c");
    }

    #[test]
    fn json_cannot_end_its_script() {
        let json = serde_json::to_string("</script><!--").unwrap();
        let safe = script_safe(&json);
        assert!(!safe.contains('<'));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "</script><!--");
    }
}
