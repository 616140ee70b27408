//! The words between a shell that is held and who is attached to it: frames on a local socket of
//! one user. Each is its kind (1 byte), a length (4 bytes, big-endian) and so many bytes.

use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest content of a frame, in bytes.
pub const CONTENT_BYTES_MAX: usize = 64 << 10;

/// The size of a terminal, in characters and in pixels (0: unknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
    pub width: u16,
    pub height: u16,
}

/// The first words of who attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The size of its terminal.
    pub size: Size,
    /// The session of `uts ssh` by which it has come, if it has come by one.
    pub by: Option<String>,
    /// The socket of the agent that its ssh forwards.
    pub agent: Option<String>,
    /// Attach only if nobody has since the shell was looked at, at this count of attachments.
    pub if_still: Option<u64>,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The shell waits for [`Hello`].
    Ready,
    /// The first words of who attaches.
    Hello(Hello),
    /// Bytes of the shell for the terminal.
    Output(Vec<u8>),
    /// Bytes of the terminal for the shell.
    Input(Vec<u8>),
    /// The terminal has another size.
    Size(Size),
    /// The shell has ended with this status, behind all of its output.
    Ended(u8),
    /// All is shown: the shell need not be kept.
    Shown,
    /// Somebody else is attached.
    Taken,
}

impl Frame {
    /// Adds the frame to what is to be written.
    pub fn write(&self, to: &mut Vec<u8>) {
        // Of texts and numbers: there is no reason why it should fail.
        let json = |hello: &Hello| serde_json::to_vec(hello).unwrap_or_default();
        let (kind, content) = match self {
            Frame::Ready => (0, Vec::new()),
            Frame::Hello(hello) => (1, json(hello)),
            Frame::Output(bytes) => (2, bytes.clone()),
            Frame::Input(bytes) => (3, bytes.clone()),
            Frame::Size(size) => {
                let all = [size.rows, size.columns, size.width, size.height];
                (4, all.iter().flat_map(|n| n.to_be_bytes()).collect())
            }
            Frame::Ended(status) => (5, vec![*status]),
            Frame::Shown => (6, Vec::new()),
            Frame::Taken => (7, Vec::new()),
        };
        to.push(kind);
        to.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
        to.extend(content);
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// Errors of the socket, its end included, and bytes that are no frame.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a frame that is none");
        let kind = from.read_u8().await?;
        let length = usize::try_from(from.read_u32().await?).unwrap_or(usize::MAX);
        if length > CONTENT_BYTES_MAX {
            return Err(wrong());
        }
        let mut content = vec![0; length];
        from.read_exact(&mut content).await?;
        Ok(match (kind, content.as_slice()) {
            (0, []) => Frame::Ready,
            (1, hello) => Frame::Hello(serde_json::from_slice(hello).map_err(|_| wrong())?),
            (2, _) => Frame::Output(content),
            (3, _) => Frame::Input(content),
            (4, &[a, b, c, d, e, f, g, h]) => {
                let [rows, columns, width, height] = [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes);
                Frame::Size(Size { rows, columns, width, height })
            }
            (5, [status]) => Frame::Ended(*status),
            (6, []) => Frame::Shown,
            (7, []) => Frame::Taken,
            _ => return Err(wrong()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let size = any::<[u16; 4]>().prop_map(|[rows, columns, width, height]| Size {
            rows,
            columns,
            width,
            height,
        });
        let name = || proptest::option::of("[a-z]{0,9}");
        let hello = (size.clone(), name(), name(), any::<Option<u64>>())
            .prop_map(|(size, by, agent, if_still)| Frame::Hello(Hello { size, by, agent, if_still }));
        prop_oneof![
            Just(Frame::Ready),
            Just(Frame::Shown),
            Just(Frame::Taken),
            hello,
            any::<Vec<u8>>().prop_map(Frame::Output),
            any::<Vec<u8>>().prop_map(Frame::Input),
            size.prop_map(Frame::Size),
            any::<u8>().prop_map(Frame::Ended),
        ]
    }

    fn read(mut bytes: &[u8]) -> io::Result<(Frame, usize)> {
        let all = bytes.len();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let frame = runtime.block_on(Frame::read(&mut bytes))?;
        Ok((frame, all - bytes.len()))
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(frame in frames(), behind: Vec<u8>) {
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            let length = bytes.len();
            bytes.extend(behind);
            prop_assert_eq!(read(&bytes).expect("a frame"), (frame, length));
        }

        #[test]
        fn whatever_comes_is_a_frame_or_an_error(bytes: Vec<u8>) {
            if let Ok((frame, length)) = read(&bytes) {
                prop_assert!(length <= bytes.len());
                let mut again = Vec::new();
                frame.write(&mut again);
                prop_assert_eq!(read(&again).expect("a frame").0, frame);
            }
        }
    }

    #[test]
    fn a_frame_has_a_longest_length() {
        let mut bytes = vec![2];
        bytes.extend(u32::try_from(CONTENT_BYTES_MAX + 1).expect("small").to_be_bytes());
        bytes.resize(CONTENT_BYTES_MAX + 100, 0);
        assert_eq!(read(&bytes).expect_err("too long").kind(), io::ErrorKind::InvalidData);
    }
}
