//! Commands for operators, on the box's REST API.
//!
//! This crate is a client of the API like any other and does not depend on the box's
//! internals. The decisions are pure: `plan` converts arguments to requests, `task`
//! converts responses and time to the next request, output and an exit code, `wait`
//! decides when a node has reached its goal. `client` and `shell` execute that.

mod activity;
mod arguments;
mod bmc;
mod client;
mod connection;
mod events;
mod exit;
mod fault;
mod manual_pages;
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
    StatusArguments,
};
pub use arguments::{ClientCommand, completion};
pub use events::EventsArguments;
pub use exit::{EXIT_CODES, Exit};
pub use manual_pages::ManualPageArguments;
pub use shell::{run, run_into};
