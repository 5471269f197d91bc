//! Nodes through the public functions, one file per theme.

mod below;
mod create;
mod lists;
mod parts;
mod patches;
mod runbooks;
mod shown;
mod verbs;
