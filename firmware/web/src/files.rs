//! Progress of the file that a machine is fetching.

use trivet_model::NoteKind;
use trivet_model::view::NodeView;

/// Files fetched since the present stage began, and the present one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct FetchedFiles {
    /// Number of files sent completely.
    pub(crate) done: u64,
    /// Thousandths of the present file that are sent; zero if there is none.
    pub(crate) permille: u64,
}

/// Reads the progress from the timeline. A stage begins with a change of state or a step.
pub(crate) fn files(node: &NodeView) -> FetchedFiles {
    let done = node
        .timeline
        .iter()
        .rev()
        .take_while(|note| {
            !matches!(
                note.kind,
                NoteKind::StateChanged { .. } | NoteKind::StepStarted { .. }
            )
        })
        .filter(|note| match note.kind {
            NoteKind::FileSent {
                sent, requested, ..
            } => sent == requested,
            _ => false,
        })
        .count() as u64;
    let permille = match node.live.transfer {
        Some((sent, size)) if size > 0 => share(sent.min(size), size, 1000),
        _ => 0,
    };
    // A file counts as complete when its note is in the timeline; until then it is below 100 %.
    FetchedFiles {
        done,
        permille: permille.min(999),
    }
}

/// `part` of `whole`, scaled to `of`.
pub(crate) fn share(part: u64, whole: u64, of: u64) -> u64 {
    let share = u128::from(part) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NodeViewCase, sent};
    use trivet_model::ProvisionState::{DeployWait, Deploying};

    #[test]
    fn counts_whole_files_of_the_present_stage_only() {
        let view = NodeViewCase::new(DeployWait)
            .note(sent("old", 5, 5))
            .note(NoteKind::StateChanged {
                from: Deploying,
                to: DeployWait,
            })
            .note(sent("snp.efi", 9, 9))
            .note(sent("kernel", 3, 9))
            .transfer("initrd", 1, 4)
            .view();
        let want = FetchedFiles {
            done: 1,
            permille: 250,
        };
        assert_eq!(files(&view), want);
    }

    #[test]
    fn hostile_sizes_do_not_overflow() {
        assert_eq!(share(u64::MAX, u64::MAX, 1000), 1000);
        assert_eq!(share(5, 0, 1000), 5000);
        let view = NodeViewCase::new(DeployWait)
            .transfer("x", u64::MAX, 1)
            .view();
        assert_eq!(files(&view).permille, 999);
        let view = NodeViewCase::new(DeployWait).transfer("x", 5, 0).view();
        assert_eq!(files(&view).permille, 0);
    }
}
