//! The web page, built from one view model.
//!
//! `model` converts a snapshot into what the page shows: the state of each node as a colour, its
//! progress, its present action, and after a failure what to do. `page` is the page itself, which
//! reads only that model's JSON. This crate decides nothing and sends no requests.

mod files;
mod model;
mod page;
mod progress;
mod why;
mod words;

#[cfg(test)]
mod testing;

pub use model::{
    FaultCard, LinkCard, NOTES_PER_NODE_MAX, NOTES_SHOWN_MAX, NodeCard, NodeCounts, NodeTone,
    NoteLine, PageModel, ServerCard, TransferCard, UnknownMachineCard, json, model,
};
pub use page::{CSP, page, script, style};
pub use progress::progress;
pub use why::{NodeCondition, NodeWhy, why};
pub use words::{advice, attempt, doing, working_since};
