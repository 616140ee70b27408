//! Text for people, some of which may come from a peer. Nothing in it steers a terminal, forges a
//! line, or turns the direction of what stands beside it.

use core::fmt::Write;

/// Whether a character shows as itself, or as nothing but room, wherever it stands.
///
/// Not plain are control characters (C0, DEL, C1), separators of lines and paragraphs, characters
/// that turn the direction of text (Unicode Standard Annex 9), and invisible characters.
pub fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'))
}

/// Text as one line. What is not [plain](is_plain) is written as in Rust (`\n`, `\u{1b}`). If a
/// text has more than `max_chars` characters, its middle is left out, and the text says so.
///
/// ```
/// assert_eq!(uts_units::printable::line("a\u{1b}[2J\nb", 80), r"a\u{1b}[2J\nb");
/// assert_eq!(uts_units::printable::line("abcdefgh", 4), "abc… (4 characters left out) …h");
/// ```
pub fn line(text: &str, max_chars: usize) -> String {
    let escaped = escape(text, |c, out| out.extend(c.escape_default()));
    let chars = escaped.chars().count();
    if chars <= max_chars {
        return escaped;
    }
    // The end says what went wrong, the beginning with what.
    let (head, tail) = (max_chars - max_chars / 4, max_chars / 4);
    let mut shortened: String = escaped.chars().take(head).collect();
    let _ = write!(shortened, "… ({} characters left out) …", chars - max_chars);
    shortened.extend(escaped.chars().skip(chars - tail));
    shortened
}

/// The same for text whose own lines are meant: each is a line of at most `max_chars` characters.
pub fn lines(text: &str, max_chars: usize) -> String {
    text.split('\n').map(|one| line(one, max_chars)).collect::<Vec<_>>().join("\n")
}

/// A JSON text that says the same without anything that is not plain.
///
/// ```
/// assert_eq!(uts_units::printable::json("{\"name\":\"a\u{202e}b\"}"), r#"{"name":"a\u202eb"}"#);
/// ```
pub fn json(text: &str) -> String {
    // Outside of strings JSON has no such character but white space, which a text on one line does
    // without.
    escape(text, |c, out| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn escape(text: &str, write: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) { out.push(c) } else { write(c, &mut out) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_but_plain_characters_is_left(text in any::<String>(), max in 0usize..40) {
            let shown = line(&text, max);
            prop_assert!(shown.chars().all(is_plain), "{shown:?}");
            let own: String = lines(&text, max);
            prop_assert!(own.chars().all(|c| c == '\n' || is_plain(c)), "{own:?}");
            prop_assert_eq!(own.matches('\n').count(), text.matches('\n').count());
            let value = serde_json::Value::String(text);
            let said = json(&value.to_string());
            prop_assert!(said.chars().all(is_plain), "{said:?}");
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&said).expect("JSON"), value);
        }
    }

    #[test]
    fn each_kind_of_character_that_steers_is_escaped() {
        for c in
            "\0\t\n\r\u{1b}\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{202e}\u{2028}\u{2066}\u{feff}\u{e0041}".chars()
        {
            assert!(!is_plain(c), "{c:?}");
            assert_eq!(line(&c.to_string(), 80), c.escape_default().to_string());
        }
        assert_eq!(line("Grüße, 你好 🙂", 80), "Grüße, 你好 🙂");
    }
}
