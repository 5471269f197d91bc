//! Raw images that were compressed as a stream.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::piece::BufferedPiece;
use crate::source::{PackedSourceCursor, PackedSourceUnreadable};
use crate::{Packing, ReadAt, UnpackRefusal, WINDOW_BYTES_MAX};

/// The tables of an xz decoder in addition to its dictionary, with a margin.
const XZ_TABLES_KIB: u32 = 1024;

/// A stream that is being decoded.
pub(crate) struct PackedStream {
    packing: Packing,
    reader: Box<dyn Read + Send>,
}

impl PackedStream {
    pub(crate) fn open<S>(packing: Packing, source: S) -> Result<Self, UnpackRefusal>
    where
        S: ReadAt + Send + 'static,
    {
        let cursor = PackedSourceCursor::new(source);
        let reader: Box<dyn Read + Send> = match packing {
            Packing::Gzip => Box::new(MultiGzDecoder::new(cursor)),
            Packing::Xz => {
                let limit = (WINDOW_BYTES_MAX / 1024) as u32 + XZ_TABLES_KIB;
                Box::new(XzReader::new_mem_limit(cursor, true, limit))
            }
            _ => Box::new(ZstdFrameReader::new(cursor).map_err(|error| refused(packing, &error))?),
        };
        Ok(Self { packing, reader })
    }

    /// A full piece, or the rest: a piece is short only at the end.
    pub(crate) fn next(
        &mut self,
        buffer: &mut [u8],
    ) -> Result<Option<BufferedPiece>, UnpackRefusal> {
        let mut have = 0;
        while have < buffer.len() {
            match self.reader.read(&mut buffer[have..]) {
                Ok(0) => break,
                Ok(bytes) => have += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(refused(self.packing, &error)),
            }
        }
        Ok((have > 0).then(|| BufferedPiece::of(&buffer[..have])))
    }
}

fn refused(packing: Packing, error: &io::Error) -> UnpackRefusal {
    let inner = error.get_ref();
    if let Some(unreadable) = inner.and_then(|inner| inner.downcast_ref::<PackedSourceUnreadable>())
    {
        return UnpackRefusal::Unreadable(unreadable.to_string());
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => UnpackRefusal::CutShort {
            packing,
            what: "its stream",
        },
        io::ErrorKind::OutOfMemory => UnpackRefusal::Window,
        _ => UnpackRefusal::damaged(packing, error.to_string()),
    }
}

/// Consecutive zstd frames.
struct ZstdFrameReader<S> {
    cursor: PackedSourceCursor<S>,
    context: DCtx<'static>,
    /// Within a frame.
    open: bool,
}

impl<S: ReadAt> ZstdFrameReader<S> {
    fn new(cursor: PackedSourceCursor<S>) -> io::Result<Self> {
        Ok(Self {
            cursor,
            context: context()?,
            open: false,
        })
    }
}

/// A zstd decoder with our window limit.
pub(crate) fn context() -> io::Result<DCtx<'static>> {
    let mut context = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    let parameter = DParameter::WindowLogMax(WINDOW_BYTES_MAX.ilog2());
    context.set_parameter(parameter).map_err(error_of)?;
    Ok(context)
}

/// Converts an error of the library.
pub(crate) fn error_of(code: zstd_safe::ErrorCode) -> io::Error {
    let name = zstd_safe::get_error_name(code);
    if name.contains("requires too much memory") {
        return io::ErrorKind::OutOfMemory.into();
    }
    io::Error::new(io::ErrorKind::InvalidData, name)
}

impl<S: ReadAt> Read for ZstdFrameReader<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.cursor.fill_buf()?;
            let ends = input.is_empty();
            if ends && !self.open {
                return Ok(0);
            }
            let mut input = InBuffer::around(input);
            let mut output = OutBuffer::around(&mut *buffer);
            let outcome = self.context.decompress_stream(&mut output, &mut input);
            let (taken, given) = (input.pos, output.pos());
            self.open = outcome.map_err(error_of)? != 0;
            self.cursor.consume(taken);
            if given > 0 {
                return Ok(given);
            }
            if ends && self.open {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
