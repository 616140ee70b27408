//! Pictures and pages that stand alone: nothing is loaded, and a picture needs no script.
//!
//! * [`svg`]: a [`Picture`](svg::Picture) of panels with axes, drawn as SVG.
//! * [`html`]: a page with everything inlined that it needs.
//! * [`thin`]: fewer points that look the same.

#![forbid(unsafe_code)]

pub mod html;
pub mod svg;
pub mod thin;
