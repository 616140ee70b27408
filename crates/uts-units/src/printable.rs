//! Text for people, some of which may come from a peer. Nothing in it steers a terminal, forges a
//! line, or turns the direction of what stands beside it.

use core::fmt::Write;
use core::net::SocketAddr;
use std::io;

/// True if a character shows as itself, or as nothing but room, wherever it stands.
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

/// An error of the system in the system's own words, to stand behind other words: the first letter
/// is small, and what the standard library puts around them is left out: a number, and that it was
/// the resolver. An error with a text of its own keeps it.
///
/// ```
/// let error = std::io::Error::from_raw_os_error(24);
/// assert_eq!(uts_units::printable::words(&error), "too many open files");
/// ```
pub fn words(error: &io::Error) -> String {
    const RESOLVER: &str = "failed to lookup address information: ";
    let text = unnumbered(&error.to_string());
    let mut chars = text.strip_prefix(RESOLVER).unwrap_or(&text).chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Text without the numbers that the standard library puts behind errors of the system:
/// `(os error 2)`.
pub fn unnumbered(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => kept.push_str(rest),
            _ => kept.extend([" (os error ", part]),
        }
    }
    kept
}

/// An address as people know it: that of an IPv4 host that talks to a socket of IPv6
/// (`[::ffff:192.0.2.1]:80`) is `192.0.2.1:80`. To be used wherever an address is shown.
///
/// ```
/// let mapped = "[::ffff:192.0.2.1]:80".parse().expect("an address");
/// assert_eq!(uts_units::printable::address(mapped).to_string(), "192.0.2.1:80");
/// ```
pub fn address(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        // The scope of an address of a link is kept.
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
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
    fn errors_of_the_system_are_in_its_words_and_have_no_numbers() {
        assert_eq!(words(&io::Error::from_raw_os_error(28)), "no space left on device");
        assert_eq!(words(&io::Error::other("it is too long")), "it is too long");
        assert_eq!(unnumbered("a: No (os error 2); b (os error 13)"), "a: No; b");
        assert_eq!(unnumbered("x (os error what) (os error 2"), "x (os error what) (os error 2");
    }

    #[test]
    fn an_address_keeps_its_scope_and_loses_only_what_maps_it() {
        for (given, shown) in [
            ("[::ffff:10.0.0.1]:7", "10.0.0.1:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
            ("[::1]:7", "[::1]:7"),
            ("10.0.0.1:7", "10.0.0.1:7"),
        ] {
            assert_eq!(address(given.parse().expect("an address")).to_string(), shown);
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
