//! Drives the agent: orders to commands, answers to events.
//!
//! Pure. [`call`] says which request an order becomes, the shell sends it, and
//! [`answer`] says what came back. Nothing here retries, waits or knows why a step
//! is run: that is decided in `firmware/node`. The protocol is that of the Ironic
//! Python Agent 13.0.0, whose traps are named where they are avoided.

mod answer;
mod call;
mod image;
mod logs;
mod raw;
mod rescue;
mod said;

pub use answer::{ANSWER_BYTES_MAX, STEPS_MAX, answer};
pub use call::{COMMAND_TIMEOUT_MS, Call, CallError, Method, call};
pub use image::{
    Places, Problem, WRITE_IMAGE, WRITE_IMAGE_PRIORITY, blames_image, is_out_of_space, told,
    write_image_step,
};
pub use logs::{COLLECT_LOGS, LOGS_BYTES_MAX, blot_token, logs_bundle, logs_call};
pub use raw::{RawAnswer, raw_answer, raw_call};
pub use rescue::{RESCUE_PASSWORD_BYTES_MAX, rescue_hash};
pub use said::{SAID_CHARS_MAX, without_token};
