//! Makes a batch durable, in as few flushes as the store allows.

use trivet_board_hal::Flash;
use trivet_store::{CommitError, Store, StoreChange};

/// Commits the changes of a batch, in one commit where it fits. A batch that is too large for
/// the store is committed in parts: nothing of it is acknowledged before the last part is
/// durable, so a power cut between two parts loses nothing that was acknowledged.
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
        // Work goes on without its story where the store has no space for it.
        Err(CommitError::Full { .. } | CommitError::RecordTooLarge { .. })
            if changes.iter().any(StoreChange::is_story) =>
        {
            let work = changes.iter().filter(|change| !change.is_story());
            make_durable(store, &work.cloned().collect::<Vec<_>>())
        }
        outcome => outcome,
    }
}
