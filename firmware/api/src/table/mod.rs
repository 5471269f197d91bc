//! The mechanism of the API, without its contents: routes, fields, microversions, access, lists,
//! patches and the schema. No module here names a module of `ironic`, `inspector` or `trivet`.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod error;
pub(crate) mod field;
pub(crate) mod list;
pub(crate) mod openapi;
pub(crate) mod patch;
pub(crate) mod path_forms;
pub(crate) mod percent;
pub(crate) mod query;
pub(crate) mod route;
pub(crate) mod version;
