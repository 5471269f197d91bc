//! The web page, from one view model.
//!
//! [`model`] turns a snapshot into what people look at: a state in colour, how
//! far a node is, what happens now in plain words, and after a failure what to
//! do. [`page`] is the page itself, which knows nothing but that model's JSON.
//! This room decides nothing and gives no orders.

mod files;
mod model;
mod page;
mod progress;
mod words;

#[cfg(test)]
mod testing;

pub use model::{
    FaultCard, LinkCard, NOTES_PER_NODE_MAX, NOTES_SHOWN_MAX, NodeCard, NodeCounts, NodeTone,
    NoteLine, PageModel, ServerCard, TransferCard, UnknownMachineCard, json, model,
};
pub use page::{CSP, page, script, style};
pub use progress::progress;
pub use words::{advice, attempt, doing, working_since};
