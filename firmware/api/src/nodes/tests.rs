//! Nodes through the public functions, one file per theme.

mod below;
mod create;
mod lists;
mod patches;
mod shown;
mod verbs;
