//! The agent's messages, both directions.
