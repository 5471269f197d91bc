//! Drives the agent: orders to commands, answers to events.
