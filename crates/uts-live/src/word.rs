//! Lines of JSON that an end prints, and the names of what is carried.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Something that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Traffic {
    /// A file without end, as fast as it goes.
    File,
    /// Messages of a voice, one every [`VOICE_EVERY`], of use for [`VOICE_DEADLINE`].
    Voice,
    /// Keystrokes, one every [`KEY_EVERY`], each echoed.
    Keys,
}

impl Traffic {
    /// All, in the order of the page.
    pub const ALL: [Traffic; 3] = [Traffic::File, Traffic::Voice, Traffic::Keys];
}

/// Something that is asked of the connection, and so of the file, which asks for nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asks {
    /// As much as the path carries.
    #[default]
    Bulk,
    /// Little delay, as somebody waits.
    Interactive,
}

/// Time between messages of the voice.
pub const VOICE_EVERY: Duration = Duration::from_millis(20);
/// Bytes of such a message: 64 kbit/s.
pub const VOICE_BYTES: usize = 160;
/// Time within which such a message is of use.
pub const VOICE_DEADLINE: Duration = Duration::from_millis(150);
/// Time between keystrokes.
pub const KEY_EVERY: Duration = Duration::from_millis(200);
/// Bytes of a keystroke.
pub const KEY_BYTES: usize = 48;
/// Time between two words of an end about how it goes.
pub const TICK: Duration = Duration::from_millis(250);

/// Something that an end says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// A server can be connected to, here, by who knows it by this.
    Ready(SocketAddr, Option<String>),
    /// A server: arrivals so far.
    Arrived(Arrived),
    /// A client: echoes and state since the last word.
    Typed(Typed),
    /// A client of UTS: the mechanisms of what it sends, as they are from now on.
    Stack(Traffic, Vec<Tile>),
    /// A client of UTS: a step of an exchange.
    Exchange(Step),
}

/// Arrivals at a server since it said so last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrived {
    /// Length of that time, in seconds.
    pub span_s: f64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Messages of the voice whose deadlines have passed.
    pub voice_due: u64,
    /// Those of them that had arrived by then.
    pub voice_in_time: u64,
    /// The mean time that messages of the voice took, in milliseconds; `None` = none came.
    pub voice_ms: Option<f64>,
}

/// Echoes at a client since it said so last, and its transport's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Typed {
    /// The longest wait for an echo, in milliseconds, of those that came and those that are
    /// awaited; `None` = there was none.
    pub keys_ms: Option<f64>,
    /// Smoothed round trip, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Loss that the transport has measured, in per cent; `None` if it does not say.
    pub loss: Option<f64>,
}

/// One function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tile {
    /// The function's name.
    pub function: String,
    /// Its mechanism, with parameters that are not at their default.
    pub mechanism: String,
    /// True if it does nothing to packets.
    pub inert: bool,
    /// True if all that the connection carries shares it.
    pub shared: bool,
}

/// A step of an exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The epoch that it is about, by which steps of one exchange are known.
    pub epoch: u32,
    /// `asked`, `agreed`, `refused`, `failed`, `brought`.
    pub kind: String,
    /// Whose mechanisms; `None` where the step does not say.
    pub traffic: Option<Traffic>,
    /// Observations that led to it.
    #[serde(default)]
    pub saw: String,
    /// Mechanisms before and after.
    #[serde(default)]
    pub changed: String,
    /// Expectations of it.
    #[serde(default)]
    pub expects: String,
    /// The outcome against what was expected, or the reason of a refusal.
    #[serde(default)]
    pub brought: String,
}
