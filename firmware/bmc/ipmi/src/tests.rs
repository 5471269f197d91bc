//! Both ends together, in virtual time, over wires of every quality.

mod errands;
mod hostile;
mod login;
mod machine;
mod orders;
mod vendor;
mod wire;
