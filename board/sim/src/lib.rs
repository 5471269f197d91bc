//! A board in memory that can lose power.
