//! Client and simulated BMC together, in virtual time, with and without network faults.

mod hostile;
mod ipmi15;
mod login;
mod operations;
mod orders;
mod plain;
mod protocol;
mod rig;
mod vendor;
mod wire;
