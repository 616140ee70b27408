//! The line of a link with compression: packets as frames, from the near end to the far one.

use crate::Payload;
use crate::compression::{Compression, Compressor, Decompressor, Form};
use crate::framing::Framing;
use crate::passage::DropReason;
use crate::queue::Queued;
use crate::stats::Stats;

/// A frame with compressed headers on its way, beside the packet that it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Framed {
    pub bytes: Vec<u8>,
    /// Setting under which it was made, and which setting of the link's that was, from 0.
    compression: Compression,
    setting: u32,
}

/// Both ends.
#[derive(Debug)]
pub(crate) struct Line {
    compression: Compression,
    setting: u32,
    near: Option<Compressor>,
    far: Option<Decompressor>,
    /// The setting that the far end knows of.
    far_setting: u32,
}

impl Line {
    pub(crate) fn new(compression: Compression) -> Self {
        let (near, far) = (Compressor::new(compression), Decompressor::new(compression));
        Line { compression, setting: 0, near, far, far_setting: 0 }
    }

    /// Begins anew under another setting. The far end hears of it by the first frame.
    pub(crate) fn restart(&mut self, compression: Compression) {
        self.compression = compression;
        self.setting += 1;
        self.near = Compressor::new(compression);
    }

    /// A packet's transmission begins: makes it a frame, and says what that takes on the wire.
    pub(crate) fn start<T: Payload>(
        &mut self,
        queued: &mut Queued<T>,
        framing: Framing,
        stats: &mut Stats,
    ) -> Result<(), DropReason> {
        let Some(near) = &mut self.near else { return Ok(()) };
        let Some(packet) = queued.payload.ip() else {
            // A type stands before all frames.
            if matches!(self.compression, Compression::Rx { typed: true, .. }) {
                queued.wire_bits = framing.wire_bits(queued.cost_bytes + 1, queued.payload.bytes());
            }
            return Ok(());
        };
        let frame = near.compress(&packet).map_err(|_| DropReason::Compression)?;
        match frame.form {
            Form::Plain => {}
            Form::Whole => stats.whole_headers += 1,
            Form::Compressed => stats.compressed_headers += 1,
        }
        let overhead_bytes = queued.cost_bytes.saturating_sub(packet.len() as u64);
        let frame_bytes = overhead_bytes + frame.bytes.len() as u64;
        queued.wire_bits = framing.wire_bits(frame_bytes, Some(&frame.bytes));
        let (compression, setting) = (self.compression, self.setting);
        drop(packet);
        queued.frame = Some(Box::new(Framed { bytes: frame.bytes, compression, setting }));
        Ok(())
    }

    /// A frame arrives: makes the packet what the far end restores. Returns by how many bytes it is
    /// longer than what was sent; `None` if there is no packet.
    pub(crate) fn restore<T: Payload>(
        &mut self,
        frame: &Framed,
        payload: &mut T,
        stats: &mut Stats,
    ) -> Option<isize> {
        if frame.setting > self.far_setting {
            self.far = Decompressor::new(frame.compression);
            self.far_setting = frame.setting;
        }
        let far = self.far.as_mut().filter(|_| frame.setting == self.far_setting)?;
        let restored = far.expand(&frame.bytes).ok()?;
        let sent = payload.ip()?;
        if restored[..] == sent[..] {
            return Some(0);
        }
        let longer = restored.len().cast_signed() - sent.len().cast_signed();
        drop(sent);
        stats.restored_wrong += 1;
        payload.set_ip(&restored).then_some(longer)
    }
}
