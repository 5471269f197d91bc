//! IPMI 2.0 over RMCP+, both ends, without input or output of their own.
