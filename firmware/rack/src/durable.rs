//! Making a batch durable, in as few flushes as the store takes it in.

use trivet_board_hal::Flash;
use trivet_store::{CommitError, Store, StoreChange};

/// Commits the changes of a batch, in one commit where it fits. A batch that
/// the store finds too large goes in parts: nothing of it is acknowledged before
/// the last part is durable, so a cut between two parts breaks no promise.
pub fn make_durable<F: Flash>(
    store: &mut Store<F>,
    changes: &[StoreChange],
) -> Result<(), CommitError> {
    match store.commit(changes) {
        Err(CommitError::BatchTooLarge { .. } | CommitError::TooManyChanges { .. })
            if changes.len() > 1 =>
        {
            let (first, second) = changes.split_at(changes.len() / 2);
            make_durable(store, first)?;
            make_durable(store, second)
        }
        outcome => outcome,
    }
}
