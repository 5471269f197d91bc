mod faults;
mod hostile;
mod login;
mod operations;
mod orders;
mod rig;
mod service;
mod tasks;
