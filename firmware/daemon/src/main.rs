//! The program `trivet`.
fn main() {}
