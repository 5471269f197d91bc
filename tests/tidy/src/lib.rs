//! Directions, names and sizes of this tree.
//!
//! Every check is a function from texts to findings, so a bad sample can show that it
//! is caught. What the tree holds is asked of `git` and `cargo` in `tree`; nothing else
//! here leaves memory. `tests/workspace.rs` runs all checks over this repository.

pub mod counted;
pub mod direction;
pub mod finding;
pub mod interface_names;
pub mod layout;
pub mod mask;
pub mod module_paths;
pub mod ratio;
pub mod references;
pub mod size;
pub mod tree;
pub mod type_names;
pub mod vocabulary;
pub mod word;

pub use finding::Finding;
pub use tree::{Dependency, Package, RepositoryTree, SourceFile};
