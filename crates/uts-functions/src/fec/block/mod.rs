//! Codes over blocks: packets are grouped, and a block that is full gets its parities.

use super::Shape;
use core::fmt::Debug;

mod decoder;
mod encoder;

pub use decoder::Decoder;
pub use encoder::Encoder;

/// The arithmetic of a block.
pub trait BlockCode: Clone + Debug + Send + Sync + 'static {
    /// Shape of its blocks.
    fn shape(&self) -> Shape;

    /// Adds `bytes`, which stand at `offset` of the symbol of source `index`, to all parities of
    /// the block. Each of `parities` reaches to the end of `bytes` at least. Order does not matter,
    /// and nothing of the source need be kept.
    fn accumulate(&self, index: usize, offset: usize, bytes: &[u8], parities: &mut [Vec<u8>]);

    /// The symbols of the sources that are `None`, in their order, from the payloads of those that
    /// are not and from parities (index within the block, symbol). All parities are of one length,
    /// no payload's symbol is longer, and indices are below [`Shape::parities`] and differ. `None`
    /// if there are fewer parities than sources missing.
    fn reconstruct(&self, sources: &[Option<&[u8]>], parities: &[(u8, &[u8])]) -> Option<Vec<Vec<u8>>>;
}

/// Makes a code over blocks a scheme.
macro_rules! block_scheme {
    ($scheme:ty) => {
        impl $crate::fec::Fec for $scheme {
            fn encoder(&self) -> Box<$crate::fec::Encoder> {
                Box::new($crate::fec::block::Encoder::new(self.clone()))
            }

            fn decoder(&self) -> Box<$crate::fec::Decoder> {
                Box::new($crate::fec::block::Decoder::new(self.clone()))
            }

            fn shape(&self) -> Option<$crate::fec::Shape> {
                Some($crate::fec::block::BlockCode::shape(self))
            }
        }
    };
}
pub(super) use block_scheme;
