//! One-time tokens for agents.
