//! The composition of all rooms into one machine.
