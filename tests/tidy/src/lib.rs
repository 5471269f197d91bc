//! Directions, names and sizes of this tree.
