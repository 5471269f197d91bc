//! Simulated sources: servers with ranges and validators, and with faults.

use crate::{ImageBodyEnd, ImageSourceHead, ImageSourceRequest};

use super::SIM_SCALE;

/// How a server of images behaves now. An open response keeps the content that it began with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimImageSource {
    /// The file.
    pub content: Vec<u8>,
    /// Its validator.
    pub validator: Option<String>,
    /// It serves ranges.
    pub has_ranges: bool,
    /// It announces the size.
    pub announces_size: bool,
    /// It disconnects each client after so many bytes.
    pub cut_after: Option<usize>,
    /// It does not answer.
    pub is_gone: bool,
    /// Milliseconds between two pieces of a body.
    pub gap_ms: u64,
    /// The password that a registry wants.
    pub pull_secret: Option<String>,
}

impl SimImageSource {
    /// A server without faults.
    pub fn new(content: Vec<u8>) -> Self {
        Self {
            content,
            validator: Some("\"one\"".to_owned()),
            has_ranges: true,
            announces_size: true,
            cut_after: None,
            is_gone: false,
            gap_ms: 10,
            pull_secret: None,
        }
    }
}

/// The body of a response.
#[derive(Clone, Debug)]
pub(super) struct SimImageResponse {
    content: Vec<u8>,
    at: usize,
    end: usize,
    is_cut: bool,
    gap_ms: u64,
}

impl SimImageResponse {
    pub(super) fn gap_ms(&self) -> u64 {
        self.gap_ms
    }

    /// The server disconnects before the end.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn rest(&self) -> Option<&[u8]> {
        self.content.get(self.at..self.end)
    }

    /// The next bytes, and how the body ends after them.
    pub(super) fn next_piece(&mut self, bytes: usize) -> (Vec<u8>, Option<ImageBodyEnd>) {
        let to = (self.at + bytes).min(self.end);
        let piece = self.content[self.at..to].to_vec();
        self.at = to;
        let end = (to == self.end).then(|| {
            if self.is_cut {
                ImageBodyEnd::Interrupted("disconnected".to_owned())
            } else {
                ImageBodyEnd::Complete
            }
        });
        (piece, end)
    }
}

/// The head of a response and its body, or why there is none.
type SimAnswer = Result<(ImageSourceHead, SimImageResponse), String>;

/// The answer of a source, and after how many milliseconds it comes.
pub(super) fn respond(
    source: Option<&SimImageSource>,
    request: &ImageSourceRequest,
) -> (u64, SimAnswer) {
    let Some(source) = source.filter(|source| !source.is_gone) else {
        return (1000, Err("does not answer".to_owned()));
    };
    let size = source.content.len();
    let is_same = |tag: &Option<String>| *tag == source.validator;
    let mut head = ImageSourceHead {
        status: 200,
        length: source.announces_size.then_some(size as u64 * SIM_SCALE),
        range: None,
        validator: source.validator.clone(),
    };
    let mut response = SimImageResponse {
        content: source.content.clone(),
        at: 0,
        end: size,
        is_cut: false,
        gap_ms: source.gap_ms,
    };
    if request.if_changed.is_some() && is_same(&request.if_changed) {
        head.status = 304;
        response.end = 0;
        return (source.gap_ms, Ok((head, response)));
    }
    let has_same = request.if_range.is_none() || is_same(&request.if_range);
    let wants_range = request.from > 0 || request.to.is_some();
    if source.has_ranges && wants_range && has_same {
        let from = usize::try_from(request.from / SIM_SCALE).unwrap_or(usize::MAX);
        let to = request.to.map_or(size as u64, |to| to / SIM_SCALE);
        if from >= size {
            head.status = 416;
            response.end = 0;
            return (source.gap_ms, Ok((head, response)));
        }
        let to = usize::try_from(to).unwrap_or(usize::MAX).min(size);
        (response.at, response.end) = (from, to);
        head.status = 206;
        let total = source.announces_size.then_some(size as u64 * SIM_SCALE);
        head.range = Some((request.from, total));
        head.length = Some((to - from) as u64 * SIM_SCALE);
    }
    if let Some(after) = source.cut_after
        && response.at + after < response.end
    {
        response.end = response.at + after;
        response.is_cut = true;
    }
    (source.gap_ms, Ok((head, response)))
}
