//! What happened to a node, what is wrong with it, and what needs attention.

use trivet_net::percent::encode;

use super::{CommandPlan, FinalAction};
use crate::arguments::NodeStoryArguments;
use crate::request::CliRequest;
use crate::show::OutputView;

/// The request of `trivet node story`.
pub(super) fn story(one: &NodeStoryArguments) -> CommandPlan {
    let query = if one.last_good { "?last_good=true" } else { "" };
    read(&one.node, query, OutputView::Story)
}

/// The request of `trivet node why`.
pub(super) fn why(node: &str) -> CommandPlan {
    read(node, "", OutputView::Why)
}

fn read(node: &str, query: &str, view: OutputView) -> CommandPlan {
    let path = format!("/trivet/nodes/{}/story{query}", encode(node));
    CommandPlan {
        subject: format!("node {node}"),
        requests: vec![CliRequest::get(path)],
        then: FinalAction::Show(view),
    }
}

/// The request of `trivet status`.
pub(crate) fn status() -> CommandPlan {
    CommandPlan {
        subject: "the status".to_owned(),
        requests: vec![CliRequest::get("/trivet/status")],
        then: FinalAction::Show(OutputView::Status),
    }
}
