//! Ironic's REST API as a function from request and view to answer or order.
