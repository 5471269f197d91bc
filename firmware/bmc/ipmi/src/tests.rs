//! Both ends together, in virtual time, over wires of every quality.

mod errands;
mod hostile;
mod login;
mod machine;
mod old;
mod orders;
mod plain;
mod vendor;
mod wire;
