//! Plots: the scale of an axis, and plots made of characters. Charts in SVG are in `report`.
//!
//! Where: used by reports, on HTML pages and on terminals.
//! Invariant: a plot draws no point outside its axes.

pub(crate) mod axis;
pub(crate) mod text;
