//! One node's life: state table, verbs, jobs.
