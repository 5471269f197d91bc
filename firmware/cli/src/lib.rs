//! Commands for people, on the box's REST API.
//!
//! This room is a client of the API like any other and knows nothing of the box's
//! inside. What decides is pure: `plan` turns arguments into requests, `task` turns
//! answers and the passing of time into the next request, output and an exit code,
//! `wait` judges when a node has arrived. `client` and `shell` carry that out.

mod activity;
mod arguments;
mod bmc;
mod client;
mod connection;
mod exit;
mod fault;
mod plan;
mod progress;
mod request;
mod shell;
mod show;
mod table;
mod task;
#[cfg(test)]
mod testing;
mod upload;
mod values;
mod wait;
mod watch;

pub use arguments::{
    BmcArguments, CompletionArguments, ImageArguments, LanArguments, NodeArguments, PortArguments,
};
pub use arguments::{ClientCommand, completion};
pub use exit::{EXIT_CODES, Exit};
pub use shell::{run, run_into};
