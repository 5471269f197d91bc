//! Which bytes a node gets for which path.
