mod errands;
mod faults;
mod hostile;
mod login;
mod machine;
mod orders;
mod service;
mod tasks;
