//! Where the time of a packet goes, from one application to another: the delay budget of
//! A. Richards, "The Universal Transport System" (1995), tables 3.3 and 3.4, measured here.
//!
//! * [`budget`]: from passages of points to rows and shares;
//! * [`measure`]: packets one by one over loopback, between two threads;
//! * [`published`]: the tables of the thesis.

pub mod budget;
pub mod measure;
pub mod published;
