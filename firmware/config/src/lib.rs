//! The settings file: file types, checked types, defaults.
