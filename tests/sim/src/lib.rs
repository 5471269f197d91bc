//! Seeded racks with faults, checkers outside.
