//! Our agent: the same protocol as the Ironic Python Agent.
