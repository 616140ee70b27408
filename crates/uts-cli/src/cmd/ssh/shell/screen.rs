//! The screen of a shell that is held, as a terminal would show it: whoever attaches gets it drawn,
//! with the lines above and the modes of the keyboard.

use super::wire::Size;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Lines above the screen that are kept. Chosen: what people scroll back; 3 MB for 200 columns.
const LINES_MAX: usize = 500;

/// The largest screen that is kept, in characters. A terminal may claim any size.
const ROWS_MAX: u16 = 500;
const COLUMNS_MAX: u16 = 1000;

/// See the head of this file.
pub struct Screen {
    parser: vt100::Parser,
    size: (NonZeroU16, NonZeroU16),
}

/// Rows and columns that are kept of a terminal: one that does not say has those of a VT100. A
/// character may take two columns.
fn bounded(size: Size) -> (NonZeroU16, NonZeroU16) {
    let within = |n: u16, min: u16, max: u16, unknown: u16| {
        let n = if n == 0 { unknown } else { n.clamp(min, max) };
        NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN)
    };
    (within(size.rows, 1, ROWS_MAX, 24), within(size.columns, 2, COLUMNS_MAX, 80))
}

impl Screen {
    /// An empty screen.
    pub fn new(size: Size) -> Screen {
        let size = bounded(size);
        Screen { parser: vt100::Parser::new(size.0, size.1, LINES_MAX), size }
    }

    /// Shows what a program has written. What the parser of a terminal cannot take costs what was
    /// shown, and not the shell.
    pub fn show(&mut self, bytes: &[u8]) {
        let shown = catch_unwind(AssertUnwindSafe(|| self.parser.process(bytes)));
        if shown.is_err() {
            self.clear();
        }
    }

    /// The terminal has another size.
    pub fn resize(&mut self, size: Size) {
        self.size = bounded(size);
        let resized = catch_unwind(AssertUnwindSafe(|| self.parser.set_size(self.size.0, self.size.1)));
        if resized.is_err() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.parser = vt100::Parser::new(self.size.0, self.size.1, LINES_MAX);
    }

    /// True if a program has the whole screen for itself.
    pub fn is_full(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// Bytes that give a terminal back which has shown this screen.
    pub fn left(&self) -> Vec<u8> {
        given_back(self.parser.screen())
    }

    /// Bytes that draw the screen on a terminal of the same size, whatever it shows.
    pub fn drawn(&mut self) -> Vec<u8> {
        let drawn = catch_unwind(AssertUnwindSafe(|| draw(self.parser.screen_mut())));
        drawn.unwrap_or_else(|_| {
            self.clear();
            Vec::new()
        })
    }
}

/// Bytes that leave a terminal as one that a program has given back: the modes that it may have
/// set, and the screen that it may have had for itself.
fn given_back(screen: &vt100::Screen) -> Vec<u8> {
    let mut bytes = vt100::Parser::new(NonZeroU16::MIN, NonZeroU16::MIN, 0).screen().input_mode_diff(screen);
    if screen.alternate_screen() {
        bytes.push_str("\x1b[?1049l");
    }
    bytes.push_str("\x1b[?25h\x1b[m\r\n");
    bytes.into_bytes()
}

fn draw(screen: &mut vt100::Screen) -> Vec<u8> {
    let (rows, columns) = screen.size();
    // Lines that were above the screen are above it again: they leave it upwards.
    let mut drawn = String::from("\x1b[m\x1b[H\x1b[2J");
    if screen.alternate_screen() {
        drawn.push_str("\x1b[?1049h");
    } else {
        let lines = screen.scrollback_len();
        for above in (1..=lines).rev() {
            screen.set_scrollback(above);
            drawn.push_str(&screen.rows_formatted(0, columns.get()).next().unwrap_or_default());
            drawn.push_str("\x1b[m\r\n");
        }
        screen.set_scrollback(0);
        if lines > 0 {
            drawn.push_str(&"\r\n".repeat(usize::from(rows.get()) - 1));
        }
    }
    drawn.push_str(&screen.state_formatted());
    drawn.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Size = Size { rows: 5, columns: 20, width: 0, height: 0 };

    /// A terminal that shows something else, and then what is drawn.
    fn terminal(screen: &mut Screen) -> vt100::Parser {
        let mut terminal = vt100::Parser::new(screen.size.0, screen.size.1, 1000);
        terminal.process(b"\x1b[31mwhat was there before\x1b[3;3H");
        terminal.process(&screen.drawn());
        terminal
    }

    #[track_caller]
    fn assert_alike(screen: &mut Screen) {
        let mut terminal = terminal(screen);
        let (there, here) = (terminal.screen_mut(), screen.parser.screen());
        assert_eq!(there.alternate_screen(), here.alternate_screen());
        assert_eq!(there.contents_formatted(), here.contents_formatted());
        assert_eq!(there.cursor_position(), here.cursor_position());
        assert_eq!(there.input_mode_formatted(), here.input_mode_formatted());
        assert_eq!(there.hide_cursor(), here.hide_cursor());
    }

    #[test]
    fn what_was_shown_is_drawn_and_the_lines_above_it() {
        let mut screen = Screen::new(SIZE);
        for line in 1..=12 {
            screen.show(format!("line {line}\r\n").as_bytes());
        }
        screen.show(b"\x1b[?2004h$ ");
        assert_alike(&mut screen);
        let mut terminal = terminal(&mut screen);
        terminal.screen_mut().set_scrollback(usize::MAX);
        let above = terminal.screen().scrollback();
        let mut seen = Vec::new();
        for above in (0..=above).rev() {
            terminal.screen_mut().set_scrollback(above);
            seen.extend(terminal.screen().rows(0, 20).next());
        }
        seen.extend(terminal.screen().rows(0, 20).skip(1));
        let seen: Vec<_> = seen.iter().filter(|line| line.starts_with("line")).cloned().collect();
        assert_eq!(seen, (1..=12).map(|line| format!("line {line}")).collect::<Vec<_>>());
    }

    #[test]
    fn a_program_that_has_the_screen_gets_it_again() {
        let mut screen = Screen::new(SIZE);
        screen.show(b"$ vi\r\n\x1b[?1049h\x1b[H\x1b[7mstatus\x1b[m\x1b[?1000h\x1b[?1h\x1b=\x1b[?25l");
        assert!(screen.is_full());
        assert_alike(&mut screen);
        let mut terminal = terminal(&mut screen);
        terminal.process(&screen.left());
        let left = terminal.screen();
        assert!(!left.alternate_screen() && !left.hide_cursor() && !left.application_cursor());
        assert_eq!(left.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        screen.show(b"\x1b[?1049l");
        assert!(!screen.is_full());
    }

    #[test]
    fn a_size_that_is_none_is_that_of_a_terminal() {
        let size = |rows, columns| bounded(Size { rows, columns, width: 0, height: 0 });
        let plain = |(rows, columns): (NonZeroU16, NonZeroU16)| (rows.get(), columns.get());
        assert_eq!(plain(size(0, 0)), (24, 80));
        assert_eq!(plain(size(1, 1)), (1, 2));
        assert_eq!(plain(size(u16::MAX, u16::MAX)), (ROWS_MAX, COLUMNS_MAX));
    }

    /// Pieces of what programs write.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => "[a-z ]{1,12}".prop_map(String::into_bytes),
            2 => "[宽字üé̈\u{200d}👩]{1,4}".prop_map(String::into_bytes),
            2 => Just(b"\r\n".to_vec()),
            4 => ("[0-9;]{0,6}", "[A-HJKLMPSTXdhlmrsu@]")
                .prop_map(|(n, kind)| format!("\x1b[{n}{kind}").into_bytes()),
            1 => "\x1b\\[\\?(1|6|7|9|25|47|1000|1002|1006|1047|1049|2004)[hl]".prop_map(String::into_bytes),
            1 => "\x1b[78=>cDEM]".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..20),
        ]
    }

    proptest! {
        /// Whatever programs write, and whatever the terminal's size becomes.
        #[test]
        fn a_screen_takes_anything(
            all in proptest::collection::vec((pieces(), any::<Option<(u16, u16)>>()), 0..60),
        ) {
            let mut screen = Screen::new(SIZE);
            for (piece, size) in all {
                screen.parser.process(&piece);
                if let Some((rows, columns)) = size {
                    screen.resize(Size { rows: rows % 60, columns: columns % 90, width: 0, height: 0 });
                }
            }
            let _ = draw(screen.parser.screen_mut());
        }
    }
}
