//! Requests of API callers: orders, smaller resources, and vendor methods, whose replies are
//! deferred.

pub(crate) mod orders;
pub(crate) mod resources;
pub(crate) mod vendor;
