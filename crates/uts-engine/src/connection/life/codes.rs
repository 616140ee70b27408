//! Codes with which connections are closed. (P-59)

/// Of the establishment: the application has ended the connection, or this end cannot keep it.
pub const ENDED: u16 = 0;

/// Of the establishment: the Hello or the first profile breaks a rule, or is not agreed to.
pub const BREACH: u16 = 1;

/// Of the establishment: a server takes no further connection.
pub const NO_PLACE: u16 = 2;

/// Of the establishment: the first of 256 codes; the number of an alert of TLS is added.
pub const ALERT: u16 = 0x100;

/// Of a frame: not the application closes the connection, but the transport.
pub const TRANSPORT: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes in the first column of the table that begins with this cell.
    fn listed(head: &str) -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/packets.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let rows = page.lines().skip_while(|line| !line.starts_with(&format!("| {head} |"))).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        rows.filter_map(|row| row.split('|').nth(1)).map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn the_page_has_these_codes() {
        let alerts = format!("{ALERT} to {}", ALERT + 255);
        let words = [ENDED, BREACH, NO_PLACE].map(|code| code.to_string());
        assert_eq!(listed("code in the establishment"), [&words[..], &[alerts]].concat());
        assert_eq!(listed("code in a frame"), [TRANSPORT.to_string(), "any other".to_owned()]);
    }
}
