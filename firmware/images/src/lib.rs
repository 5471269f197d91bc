//! The catalogue of images.
