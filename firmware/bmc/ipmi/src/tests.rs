//! Both ends together, in virtual time, over wires of every quality.

mod hostile;
mod ipmi15;
mod login;
mod operations;
mod orders;
mod plain;
mod rig;
mod vendor;
mod wire;
