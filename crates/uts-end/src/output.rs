//! The output of a program, and what happens if nobody reads it any more or nothing takes it. All
//! that a program writes to its standard streams goes through here, and so does what it reads.
//!
//! Lost output makes no program panic. It is noted, and if all else went well, the exit status says
//! so ([`status`]). The status is 141 if the reader is gone, as a shell shows it for a program that
//! SIGPIPE has ended. It is 1 if the output takes no more (a full disk). Standard error then says
//! so, once for each output. Programs that only print end at the first lost line. Programs that
//! carry something go on.

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use core::fmt::Display;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{isatty, tcgetwinsize};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use uts::{descriptor, printable};

pub use uts::printable::{unnumbered, words};

/// The exit status where a reader has gone: 128 and the number of SIGPIPE.
pub const READER_GONE: u8 = 141;
/// The exit status where the command line is wrong.
pub const USAGE: u8 = 2;
/// The longest line of an error, in characters: longer than the longest path (4,096 bytes) and the
/// text around it.
pub const LINE_CHARS_MAX: usize = 5_000;

/// One of a program's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output: results, and events for programs.
    Out,
    /// Standard error: errors, warnings, how far it is.
    Err,
}

/// Something could not be written, which has been noted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nobody reads any more.
    Reader,
    /// The output takes no more.
    Full,
}

/// `std::error::Error`, for code that passes it on. It is not reported again.
impl Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Lost::Reader => "nobody reads the output any more",
            Lost::Full => "the output takes no more",
        })
    }
}

impl core::error::Error for Lost {}

impl Lost {
    fn status(self) -> u8 {
        match self {
            Lost::Reader => READER_GONE,
            Lost::Full => 1,
        }
    }
}

/// State of an output.
#[derive(Debug)]
struct State {
    /// Loss that came first.
    lost: Option<Lost>,
    /// A line was written in part: the next begins on a line of its own.
    is_torn: bool,
}

static STATES: [Mutex<State>; 2] = [const { Mutex::new(State { lost: None, is_torn: false }) }; 2];
static NAME: OnceLock<&'static str> = OnceLock::new();

/// Says how errors of this process begin: `uts`, `uts-lab`.
pub fn name(name: &'static str) {
    // A process has one name: the first.
    let _ = NAME.set(name);
}

/// Name with which errors of this process begin.
pub fn program() -> &'static str {
    NAME.get().copied().unwrap_or("uts")
}

/// The exit status of a program that would end with `status` if nothing that it wrote were lost.
pub fn status(status: u8) -> ExitCode {
    if status != 0 {
        return ExitCode::from(status);
    }
    let lost = [Output::Out, Output::Err].map(|output| output.state().lost);
    // Of two causes the one that nobody has chosen.
    let full = lost.iter().flatten().find(|lost| **lost == Lost::Full);
    ExitCode::from(full.or(lost.iter().flatten().next()).map_or(0, |lost| lost.status()))
}

/// Notes the loss of something else that the user asked for, such as a file beside the outputs. It
/// has already been reported.
pub fn lose() {
    Output::Out.state().lost.get_or_insert(Lost::Full);
}

/// Writes an error, a line that begins with the [name](program) of this process, to standard error.
pub fn fail(line: impl Display) {
    let text = printable::line(&format!("{}: {}", program(), unnumbered(&line.to_string())), LINE_CHARS_MAX);
    // Where that is not possible the exit status has to do.
    let _ = Output::Err.line(&text);
}

impl Output {
    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Output::Out => stdout(),
            Output::Err => stderr(),
        }
    }

    /// Another handle of it, to hand it over to a program or to a copy.
    ///
    /// # Errors
    /// Those of the operating system: it may be closed.
    pub fn handle(self) -> io::Result<OwnedFd> {
        self.descriptor().try_clone_to_owned()
    }

    /// True if people see it at once.
    pub fn is_terminal(self) -> bool {
        isatty(self.descriptor())
    }

    /// Columns and lines of the terminal that it is, as it is now. `None` if it is none, or does
    /// not say.
    pub fn size(self) -> Option<(u16, u16)> {
        let size = tcgetwinsize(self.descriptor()).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
    }

    /// True if the user wants colours there: a terminal that has them, unless the environment says
    /// otherwise (`NO_COLOR`, `CLICOLOR`).
    fn has_colour(self) -> bool {
        let choice = match self {
            Output::Out => anstream::AutoStream::choice(&io::stdout()),
            Output::Err => anstream::AutoStream::choice(&io::stderr()),
        };
        choice != anstream::ColorChoice::Never
    }

    fn state(self) -> MutexGuard<'static, State> {
        let [out, err] = &STATES;
        let state = if self == Output::Out { out } else { err };
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes text and the end of its last line at once. A reader at the other end of a pipe sees
    /// it whole.
    ///
    /// # Errors
    /// [`Lost`], which was noted, and told where that is of use.
    pub fn line(self, text: &str) -> Result<(), Lost> {
        let mut state = self.state();
        if state.lost == Some(Lost::Reader) {
            return Err(Lost::Reader);
        }
        let start = if state.is_torn { "\n" } else { "" };
        let text = format!("{start}{text}\n");
        let (written, ended) = descriptor::write_all(self.descriptor(), text.as_bytes());
        state.is_torn = ended.is_err() && (state.is_torn || written > 0);
        self.noted(state, ended)
    }

    /// Writes all of these bytes, as they are. Waits while the output takes no more, also where
    /// another program has made it non-blocking.
    ///
    /// # Errors
    /// [`Lost`], which was noted, and told where that is of use.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), Lost> {
        let state = self.state();
        if state.lost == Some(Lost::Reader) {
            return Err(Lost::Reader);
        }
        let (_, ended) = descriptor::write_all(self.descriptor(), bytes);
        self.noted(state, ended)
    }

    /// Notes what was lost, if anything was, and tells it the first time.
    fn noted(self, mut state: MutexGuard<'static, State>, ended: io::Result<()>) -> Result<(), Lost> {
        let Err(error) = ended else { return Ok(()) };
        let lost = if error.kind() == io::ErrorKind::BrokenPipe { Lost::Reader } else { Lost::Full };
        let is_first = state.lost.is_none();
        state.lost.get_or_insert(lost);
        drop(state);
        if self == Output::Out && is_first && lost == Lost::Full {
            fail(format_args!("cannot write to standard output: {}", words(&error)));
        }
        Err(lost)
    }
}

/// Reads from standard input. Waits until there is something, also where another program has made
/// it non-blocking. 0 is the end.
///
/// # Errors
/// Those of the operating system.
pub fn read_input(buffer: &mut [u8]) -> io::Result<usize> {
    descriptor::read(stdin(), buffer)
}

/// Another handle of standard input, to hand it over to a program or to a copy.
///
/// # Errors
/// Those of the operating system: it may be closed.
pub fn input_handle() -> io::Result<OwnedFd> {
    stdin().try_clone_to_owned()
}

/// True if somebody is there to answer a question: standard input and standard error are a
/// terminal.
pub fn can_ask() -> bool {
    isatty(stdin()) && Output::Err.is_terminal()
}

/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1_000;

/// Asks a question on standard error, and reads the line that is typed behind it. Nothing is read
/// of what was typed behind that line.
///
/// # Errors
/// Those of the operating system; [`Lost`] if it cannot be asked.
pub fn ask(question: impl Display) -> io::Result<String> {
    let question = printable::line(&unnumbered(&question.to_string()), LINE_CHARS_MAX);
    Output::Err.bytes(format!("{question} ").as_bytes()).map_err(io::Error::other)?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while answer.len() < ANSWER_BYTES_MAX && read_input(&mut byte)? > 0 && byte != *b"\n" {
        answer.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&answer).trim().to_owned())
}

/// For code that writes to any writer: one line at a time, with its end. Lost output is an error
/// for that code too.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        match self.line(text.strip_suffix('\n').unwrap_or(&text)) {
            Ok(()) => Ok(bytes.len()),
            Err(lost) => Err(io::Error::other(lost)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A word of advice about an option that a command does not have, for those who know it from
/// another program: the command (`uts cp`) and the option (`-P`) are given.
pub type Advice = fn(&str, &str) -> Option<&'static str>;

/// Reads the command line. An error in it is reported in one line. Help and version go to standard
/// output.
///
/// # Errors
/// The exit status of a program that has nothing more to do.
pub fn parse<P: Parser>() -> Result<P, ExitCode> {
    parse_advising(|_, _| None)
}

/// As [`parse`], with advice about options that there are not.
///
/// # Errors
/// As [`parse`].
pub fn parse_advising<P: Parser>(advice: Advice) -> Result<P, ExitCode> {
    parse_line(std::env::args_os(), advice)
}

/// Leaves out of the advice about a command that there is not those that are for no person.
fn advise_no_hidden(error: &mut clap::Error, program: &clap::Command) {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let is_hidden = |name: &String| program.find_subcommand(name).is_some_and(|found| found.is_hide_set());
    let shown: Vec<String> = names.iter().filter(|name| !is_hidden(name)).cloned().collect();
    if shown.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
    } else {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
    }
}

/// As [`parse_advising`], of this command line, which begins with the program's name.
///
/// # Errors
/// As [`parse`].
pub fn parse_line<P: Parser>(
    line: impl IntoIterator<Item = OsString>,
    advice: Advice,
) -> Result<P, ExitCode> {
    P::try_parse_from(line).map_err(|mut error| {
        advise_no_hidden(&mut error, &P::command());
        let output = if error.use_stderr() { Output::Err } else { Output::Out };
        let code = if error.use_stderr() { USAGE } else { 0 };
        let text = error.render();
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let text = if output.has_colour() { text.ansi().to_string() } else { text.to_string() };
                let _ = output.line(text.trim_end());
            }
            _ => {
                let unknown = match error.get(ContextKind::InvalidArg) {
                    Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
                        option
                    }
                    _ => "",
                };
                fail(one_line(&text.to_string(), |command| advice(command, unknown)));
            }
        }
        status(code)
    })
}

/// Error of clap about a command line, without its usage: what is wrong, and where to read on.
/// Advice about the command takes the place of a guess.
fn one_line(text: &str, advice: impl FnOnce(&str) -> Option<&'static str>) -> String {
    let mut said = String::new();
    let mut command = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(usage) = line.strip_prefix("Usage:") {
            let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
            command = Some(usage.split_whitespace().take_while(is_word).collect::<Vec<_>>().join(" "));
            break;
        }
        if line.starts_with("For more information") {
            break;
        }
        let line = line.strip_prefix("error:").unwrap_or(line).trim();
        // That an option could be meant as a value is hardly ever of help.
        if line.starts_with("tip: to pass ") {
            continue;
        }
        let between = match line {
            _ if said.is_empty() => "",
            tip if tip.starts_with("tip:") => "; ",
            _ => " ",
        };
        said.push_str(between);
        said.push_str(line);
    }
    let advice = advice(command.as_deref().unwrap_or_default());
    match (advice, command) {
        (Some(advice), _) => format!("{said}; {advice}"),
        (None, Some(command)) => format!("{said} (see {command} --help)"),
        (None, None) => said,
    }
}

/// The longest line, in characters. Lines for programs (JSON) may be long. A peer's text is
/// shortened where it arises.
const PRINTED_CHARS_MAX: usize = 1 << 20;

/// Writes a line to standard output at once, so that a reader at the other end of a pipe sees it.
///
/// # Errors
/// [`Lost`]. A program that only prints ends with it. A program that has more to do may ignore it,
/// because it is noted.
pub fn print_line(line: &str) -> Result<(), Lost> {
    Output::Out.line(&printable::lines(line, PRINTED_CHARS_MAX))
}

/// Writes a line to standard error. That it is lost is no reason not to go on, and is noted.
pub fn tell_line(line: impl Display) {
    let _ = Output::Err.line(&printable::lines(&unnumbered(&line.to_string()), PRINTED_CHARS_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_command_line_is_one_line() {
        for (text, line) in [
            (
                "error: the following required arguments were not provided:\n  --dir <DIR>\n\nUsage: uts serve --dir \
                 <DIR>\n\nFor more information, try '--help'.\n",
                "the following required arguments were not provided: --dir <DIR> (see uts serve --help)",
            ),
            (
                "error: unexpected argument '--x' found\n\n  tip: a similar argument exists: '--y'\n\nUsage: uts cp \
                 [OPTIONS] <SRC>... <DST>\n\nFor more information, try '--help'.\n",
                "unexpected argument '--x' found; tip: a similar argument exists: '--y' (see uts cp --help)",
            ),
            (
                "error: invalid value 'x' for '--role <ROLE>'\n  [possible values: a, b]\n\nFor more information, try \
                 '--help'.\n",
                "invalid value 'x' for '--role <ROLE>' [possible values: a, b]",
            ),
        ] {
            assert_eq!(one_line(text, |_| None), line);
        }
        let unknown = "error: unexpected argument '-P' found\n\n  tip: to pass '-P' as a value, use '-- -P'\n\nUsage: \
                       uts cp [OPTIONS] <SRC>... <DST>\n";
        let advised = one_line(unknown, |command| (command == "uts cp").then_some("write HOST:PORT"));
        assert_eq!(advised, "unexpected argument '-P' found; write HOST:PORT");
        assert_eq!(one_line(unknown, |_| None), "unexpected argument '-P' found (see uts cp --help)");
    }
}
