//! Clusters that are compressed, each for itself.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

use super::header::{Compression, damaged};
use crate::stream::{context, error_of};
use crate::{ReadAt, Refusal};

/// So much of a compressed cluster is read at once.
const READ_BYTES: u64 = 16 * 1024;

/// What decompresses clusters, made when the first one is met.
enum Decoder {
    Deflate(Decompress),
    Zstd(DCtx<'static>),
}

/// The last compressed cluster that was read.
pub(super) struct Squeezed {
    decoder: Decoder,
    input: Vec<u8>,
    /// All of it, decompressed.
    pub(super) cluster: Vec<u8>,
}

/// Where a compressed cluster is: its first byte, and how many there are at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl Place {
    /// From an entry of level 2 (bit 62 is set): the offset, then how many further
    /// sectors of 512 bytes its data reaches into.
    pub(super) fn of(entry: u64, cluster_bits: u32) -> Self {
        let offset_bits = 62 - (cluster_bits - 8);
        let at = entry & ((1 << offset_bits) - 1);
        let sectors = (entry & ((1 << 62) - 1)) >> offset_bits;
        Self {
            at,
            bytes: (sectors + 1) * 512 - at % 512,
        }
    }
}

/// What one step of a decoder did.
struct Step {
    taken: usize,
    given: usize,
    ended: bool,
}

impl Squeezed {
    pub(super) fn new(compression: Compression, cluster_bytes: usize) -> Result<Self, Refusal> {
        let decoder = match compression {
            Compression::Deflate => Decoder::Deflate(Decompress::new(false)),
            Compression::Zstd => {
                let made = context();
                Decoder::Zstd(made.map_err(|error| Refusal::Unreadable(error.to_string()))?)
            }
        };
        Ok(Self {
            decoder,
            input: Vec::new(),
            cluster: vec![0; cluster_bytes],
        })
    }

    /// Decompresses a whole cluster; tells how many bytes it was made from. The last
    /// sector may be shared with the next cluster, and end after the file.
    pub(super) fn read(&mut self, source: &impl ReadAt, place: Place) -> Result<u64, Refusal> {
        let length = source.length();
        if place.at >= length {
            let what = "a compressed cluster";
            let at = place.at;
            return Err(Refusal::Outside { what, at, length });
        }
        let ends = place.at + place.bytes.min(length - place.at);
        self.reset();
        let (mut at, mut taken, mut given) = (place.at, 0, 0);
        loop {
            let bytes = (ends - at).min(READ_BYTES) as usize;
            self.input.resize(bytes, 0);
            source.read(&mut self.input, at)?;
            let step = self.step(given).map_err(|error| wrong(&error))?;
            at += step.taken as u64;
            taken += step.taken as u64;
            given += step.given;
            if given == self.cluster.len() {
                return Ok(taken);
            }
            if step.ended || (step.taken == 0 && step.given == 0) {
                return Err(damaged("a compressed cluster is cut short"));
            }
        }
    }

    fn reset(&mut self) {
        match &mut self.decoder {
            Decoder::Deflate(deflate) => deflate.reset(false),
            // Only what was kept of the last frame is forgotten; this cannot fail.
            Decoder::Zstd(zstd) => {
                let _ = zstd.reset(ResetDirective::SessionOnly);
            }
        }
    }

    fn step(&mut self, given: usize) -> io::Result<Step> {
        let output = &mut self.cluster[given..];
        match &mut self.decoder {
            Decoder::Deflate(deflate) => {
                let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
                let status = deflate
                    .decompress(&self.input, output, FlushDecompress::None)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Ok(Step {
                    taken: (deflate.total_in() - before_in) as usize,
                    given: (deflate.total_out() - before_out) as usize,
                    ended: status == Status::StreamEnd,
                })
            }
            Decoder::Zstd(zstd) => {
                let mut input = InBuffer::around(&self.input);
                let mut output = OutBuffer::around(output);
                let went = zstd.decompress_stream(&mut output, &mut input);
                let (taken, given) = (input.pos, output.pos());
                went.map_err(error_of)?;
                // One frame may be followed by the next until the cluster is full.
                let ended = false;
                Ok(Step {
                    taken,
                    given,
                    ended,
                })
            }
        }
    }
}

fn wrong(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::OutOfMemory {
        return Refusal::Window;
    }
    damaged(format!("a compressed cluster is wrong ({error})"))
}
