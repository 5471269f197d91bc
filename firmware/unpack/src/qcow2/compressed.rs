//! Clusters that are compressed, each for itself.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, InBuffer, OutBuffer, ResetDirective};

use super::header::{Qcow2Compression, damaged};
use crate::stream::{context, error_of};
use crate::{ReadAt, UnpackRefusal};

/// So much of a compressed cluster is read at once.
const READ_BYTES: u64 = 16 * 1024;

/// What decompresses clusters, made when the first one is met.
enum ClusterDecoder {
    Deflate(Decompress),
    Zstd(DCtx<'static>),
}

/// The last compressed cluster that was read.
pub(super) struct CompressedCluster {
    decoder: ClusterDecoder,
    input: Vec<u8>,
    /// All of it, decompressed.
    pub(super) cluster: Vec<u8>,
}

/// Where a compressed cluster is: its first byte, and how many there are at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CompressedClusterRange {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

impl CompressedClusterRange {
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

    /// Decompresses a whole cluster; tells how many bytes it was made from. The last
    /// sector may be shared with the next cluster, and end after the file.
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
            // Only what was kept of the last frame is forgotten; this cannot fail.
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
                let went = zstd.decompress_stream(&mut output, &mut input);
                let (taken, given) = (input.pos, output.pos());
                went.map_err(error_of)?;
                // One frame may be followed by the next until the cluster is full.
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
