//! The networks of the box.

use super::{CommandPlan, FinalAction};
use crate::arguments::LanCommand;
use crate::request::CliRequest;
use crate::show::OutputView;

/// The requests of `trivet lan ...`.
pub(crate) fn lan(command: LanCommand) -> CommandPlan {
    let (subject, view) = match command {
        LanCommand::Networks => ("networks", OutputView::Networks),
        LanCommand::Faults => ("faults", OutputView::Faults),
        LanCommand::Unknown => ("strangers", OutputView::UnknownMachines),
    };
    CommandPlan {
        subject: subject.to_owned(),
        requests: vec![CliRequest::get(format!("/trivet/{subject}"))],
        then: FinalAction::Show(view),
    }
}
