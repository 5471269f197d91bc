//! One node as an answer.

use trivet_model::view::NodeView;

use super::fields::FIELDS;
use crate::call::Call;
use crate::error::Fault;
use crate::field::Shown;
use crate::{Outcome, Response, field, list};

/// `GET /v1/nodes/<ident>`.
pub(crate) fn show(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let fields = match list::asked(FIELDS, call)? {
        Some(fields) => fields,
        None => field::every(FIELDS, call),
    };
    let shown = Shown {
        fields: &fields,
        record: view,
        call,
    };
    Ok(Outcome::Reply(Response::json(200, &shown)))
}

/// The whole node, as a creation or a patch answers it.
pub(crate) fn whole(call: &Call<'_>, view: &NodeView, created: bool) -> Response {
    let shown = Shown {
        fields: &field::every(FIELDS, call),
        record: view,
        call,
    };
    if !created {
        return Response::json(200, &shown);
    }
    let location = call.location(&format!("nodes/{}", view.node.id));
    Response::json(201, &shown).with_location(Some(location))
}
