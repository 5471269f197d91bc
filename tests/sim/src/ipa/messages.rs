//! Messages of the real agent, as recorded.

use serde_json::{Value, json};

pub(super) const API_NAME: &str = "OpenStack Ironic Python Agent API";
pub(super) const API_DESCRIPTION: &str =
    "Ironic Python Agent is a provisioning agent for OpenStack Ironic";
pub(super) const DOCS_URL: &str = "https://docs.openstack.org/ironic-python-agent";

pub(super) const UNAUTHORIZED: &str = "401 Unauthorized: Token invalid.";
pub(super) const NAME_OR_PARAMS: &str = "400 Bad Request: Missing or invalid name or params";
pub(super) const NO_DOT: &str =
    "Invalid command: Command name must be of the form <extension>.<name>";
pub(super) const NOT_FOUND: &str = "404 Not Found: The requested URL was not found on the \
     server. If you entered the URL manually please check your spelling and try again.";
pub(super) const NOT_ALLOWED: &str =
    "405 Method Not Allowed: The method is not allowed for the requested URL.";
pub(super) const NOT_STANDALONE: &str = "Invalid command: Node lookup data can only be set when \
     the Ironic Python Agent is running in standalone mode.";

/// An empty tar archive, gzipped, in base64: the files of a real one do not matter here.
pub(super) const LOGS: &str = "H4sIAAAAAAACA2NgGAWjYBSMVAAALq+17wAEAAA=";

/// The API's message for a body that is not JSON. The reason is the parser's own.
pub(super) fn bad_json(body: &[u8]) -> String {
    let why = match serde_json::from_slice::<Value>(body) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    format!("400 Bad Request: Failed to decode JSON object: {why}")
}

pub(super) fn redirect_page(location: &str) -> String {
    let shown = location.replace('&', "&amp;");
    format!(
        "<!doctype html>\n<html lang=en>\n<title>Redirecting...</title>\n\
         <h1>Redirecting...</h1>\n<p>You should be redirected automatically to the target URL: \
         <a href=\"{shown}\">{shown}</a>. If not, click the link.\n"
    )
}

/// An error as in `command_error`. Few codes are not 500.
pub(super) fn error(kind: &str, details: &str) -> Value {
    let (code, message) = match kind {
        "CommandExecutionError" => (500, "Command execution failed"),
        "CleaningError" => (500, "Clean step failed"),
        "DeploymentError" => (500, "Deploy step failed"),
        "ServicingError" => (500, "Service step failed"),
        "ImageDownloadError" | "ImageDownloadFatalError" => (500, "Error downloading image"),
        "ImageChecksumError" => (500, "Error verifying image checksum"),
        "HardwareManagerMethodNotFound" => (500, "No HardwareManager found to handle method"),
        "InvalidCommandParamsError" => (400, "Invalid command parameters"),
        "LookupNodeError" => (500, "Error getting configuration from Ironic"),
        "VersionMismatch" => {
            let message = "Hardware managers version mismatch, reload agent with correct version";
            (409, message)
        }
        _ => (500, "An error occurred"),
    };
    json!({"type": kind, "code": code, "message": message, "details": details})
}

/// Replaces the descriptions of steps' arguments, which have no effect.
pub(super) const ARGUMENT: &str = "...";
