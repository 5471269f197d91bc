//! Nodes through the public functions, one file per theme.

mod create;
mod lists;
mod parts;
mod patches;
mod runbooks;
mod shown;
mod subresources;
mod verbs;
