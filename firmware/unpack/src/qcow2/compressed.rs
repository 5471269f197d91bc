//! Compressed clusters; each is compressed separately.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

use super::header::{Qcow2Compression, damaged};
use crate::stream::{context, error_of};
use crate::{ReadAt, UnpackRefusal};

/// How much of a compressed cluster is read at once.
const READ_BYTES: u64 = 16 * 1024;

/// The decoder for clusters, created for the first compressed one.
enum ClusterDecoder {
    Deflate(Decompress),
    Zstd(DCtx<'static>),
}

/// The last compressed cluster that was read.
pub(super) struct CompressedCluster {
    decoder: ClusterDecoder,
    input: Vec<u8>,
    /// The whole cluster, decompressed.
    pub(super) cluster: Vec<u8>,
}

/// The position of a compressed cluster: its first byte and its maximum length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CompressedClusterRange {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl CompressedClusterRange {
    /// From a level 2 entry (bit 62 is set): the offset, then how many further sectors of 512
    /// bytes the data extends into.
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

/// The result of one decoder step.
struct ClusterDecodeStep {
    consumed: usize,
    produced: usize,
    ended: bool,
}

impl CompressedCluster {
    pub(super) fn new(
        compression: Qcow2Compression,
        cluster_bytes: usize,
    ) -> Result<Self, UnpackRefusal> {
        let decoder = match compression {
            Qcow2Compression::Deflate => ClusterDecoder::Deflate(Decompress::new(false)),
            Qcow2Compression::Zstd => {
                let made = context();
                ClusterDecoder::Zstd(
                    made.map_err(|error| UnpackRefusal::Unreadable(error.to_string()))?,
                )
            }
        };
        Ok(Self {
            decoder,
            input: Vec::new(),
            cluster: vec![0; cluster_bytes],
        })
    }

    /// Decompresses a whole cluster and returns the number of compressed bytes. The last sector
    /// may be shared with the next cluster, and may extend past the end of the file.
    pub(super) fn read(
        &mut self,
        source: &impl ReadAt,
        place: CompressedClusterRange,
    ) -> Result<u64, UnpackRefusal> {
        let length = source.length();
        if place.at >= length {
            let what = "a compressed cluster";
            let at = place.at;
            return Err(UnpackRefusal::Outside { what, at, length });
        }
        let ends = place.at + place.bytes.min(length - place.at);
        self.reset();
        let (mut at, mut taken, mut given) = (place.at, 0, 0);
        loop {
            let bytes = (ends - at).min(READ_BYTES) as usize;
            self.input.resize(bytes, 0);
            source.read(&mut self.input, at)?;
            let step = self.step(given).map_err(|error| wrong(&error))?;
            at += step.consumed as u64;
            taken += step.consumed as u64;
            given += step.produced;
            if given == self.cluster.len() {
                return Ok(taken);
            }
            if step.ended || (step.consumed == 0 && step.produced == 0) {
                return Err(damaged("a compressed cluster is cut short"));
            }
        }
    }

    fn reset(&mut self) {
        match &mut self.decoder {
            ClusterDecoder::Deflate(deflate) => deflate.reset(false),
            // This only resets the state of the last frame; it cannot fail.
            ClusterDecoder::Zstd(zstd) => {
                let _ = zstd.reset(ResetDirective::SessionOnly);
            }
        }
    }

    fn step(&mut self, given: usize) -> io::Result<ClusterDecodeStep> {
        let output = &mut self.cluster[given..];
        match &mut self.decoder {
            ClusterDecoder::Deflate(deflate) => {
                let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
                let status = deflate
                    .decompress(&self.input, output, FlushDecompress::None)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Ok(ClusterDecodeStep {
                    consumed: (deflate.total_in() - before_in) as usize,
                    produced: (deflate.total_out() - before_out) as usize,
                    ended: status == Status::StreamEnd,
                })
            }
            ClusterDecoder::Zstd(zstd) => {
                let mut input = InBuffer::around(&self.input);
                let mut output = OutBuffer::around(output);
                let outcome = zstd.decompress_stream(&mut output, &mut input);
                let (taken, given) = (input.pos, output.pos());
                outcome.map_err(error_of)?;
                // Several frames may follow each other until the cluster is full.
                let ended = false;
                Ok(ClusterDecodeStep {
                    consumed: taken,
                    produced: given,
                    ended,
                })
            }
        }
    }
}

fn wrong(error: &io::Error) -> UnpackRefusal {
    if error.kind() == io::ErrorKind::OutOfMemory {
        return UnpackRefusal::Window;
    }
    damaged(format!("a compressed cluster is wrong ({error})"))
}
