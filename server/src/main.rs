//! hypostyle
fn main() {}
