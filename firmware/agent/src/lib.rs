//! Drives the agent: orders to commands, replies to events.
//!
//! Pure. `call` converts an order into a request, the shell sends it, and `answer` converts
//! the reply. Nothing here retries, waits or knows why a step runs: that is decided in
//! `firmware/node`. The protocol is that of the Ironic Python Agent 13.0.0; comments name its
//! pitfalls where the code avoids them.

mod agent_text;
mod answer;
mod call;
mod image;
mod logs;
mod raw;
mod rescue;

pub use agent_text::{AGENT_TEXT_CHARS_MAX, without_token};
pub use answer::{ANSWER_BYTES_MAX, STEPS_MAX, answer};
pub use call::{AgentCallError, AgentHttpMethod, AgentHttpRequest, COMMAND_TIMEOUT_MS, call};
pub use image::{
    DeploymentSources, WRITE_IMAGE_PRIORITY, WriteImageProblem, image_deployment,
    is_disk_not_found, is_http_refusal, is_image_error, is_out_of_space, write_image_step,
};
pub use logs::{COLLECT_LOGS, LOGS_BYTES_MAX, logs_bundle, logs_call, redact_token};
pub use raw::{RawAgentReply, raw_answer, raw_call};
pub use rescue::{RESCUE_PASSWORD_BYTES_MAX, rescue_hash};
pub use trivet_agent_wire::image::{WRITE_IMAGE, write_image_args, writes_ahead};
