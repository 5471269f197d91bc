//! Inventory to properties.
