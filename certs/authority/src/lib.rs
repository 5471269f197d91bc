//! The box's certificate authority and TLS set-up.
