//! Nodes beyond their records: allocations and deploy templates.

pub(crate) mod allocations;
pub(crate) mod templates;
