//! Images that are packed with zstd on their way (RFC 8878; `Content-Encoding: zstd`).

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::{ImageWriteError, ImageWriter};

/// The largest window: that of RFC 9659 for HTTP, 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;

/// Why a packed image was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PackedImageError {
    /// It is not zstd, or is damaged.
    #[error("the packed image is damaged: {0}")]
    Damaged(&'static str),
    /// It ended within a frame.
    #[error("the packed image was cut off")]
    Cut,
    /// There is no memory for its window.
    #[error("there is no memory to unpack the image")]
    NoMemory,
    /// The unpacked image was refused.
    #[error(transparent)]
    Image(#[from] ImageWriteError),
}

/// Unpacks an image into a writer.
pub struct PackedImageDecoder {
    context: DCtx<'static>,
    /// Within a frame.
    is_open: bool,
}

impl PackedImageDecoder {
    /// A decoder at the start of an image.
    pub fn new() -> Result<Self, PackedImageError> {
        let mut context = DCtx::try_create().ok_or(PackedImageError::NoMemory)?;
        let limit = context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX));
        limit.map_err(|code| PackedImageError::Damaged(zstd_safe::get_error_name(code)))?;
        Ok(Self {
            context,
            is_open: false,
        })
    }

    /// Unpacks the next bytes directly into the buffer of the writer. After an error of the
    /// writer, the decoder cannot continue: the image is requested without packing.
    pub fn push(
        &mut self,
        packed: &[u8],
        writer: &mut ImageWriter<'_>,
    ) -> Result<(), PackedImageError> {
        let mut input = InBuffer::around(packed);
        loop {
            let mut output = OutBuffer::around(writer.space());
            let outcome = self.context.decompress_stream(&mut output, &mut input);
            let (taken, unpacked) = (input.pos, output.pos());
            let space = output.capacity();
            let rest = outcome
                .map_err(|code| PackedImageError::Damaged(zstd_safe::get_error_name(code)))?;
            self.is_open = rest != 0;
            writer.advance(unpacked)?;
            // A full buffer may not have been the last one.
            if taken == packed.len() && unpacked < space {
                return Ok(());
            }
        }
    }

    /// Checks that the last frame was whole.
    pub fn finish(self) -> Result<(), PackedImageError> {
        if self.is_open {
            return Err(PackedImageError::Cut);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryDisk;
    use crate::{ExpectedImage, ReadBackCheck};
    use trivet_chunks::{DigestAlgorithm, IncrementalDigest};

    fn packed(image: &[u8], window_log: u32) -> Vec<u8> {
        let mut context = zstd_safe::CCtx::create();
        let window = zstd_safe::CParameter::WindowLog(window_log);
        context.set_parameter(window).unwrap();
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(image.len()));
        context.compress2(&mut packed, image).unwrap();
        packed
    }

    fn expected(image: &[u8]) -> ExpectedImage {
        let mut running = IncrementalDigest::new(DigestAlgorithm::Sha256);
        running.update(image);
        ExpectedImage {
            digest: running.finish(),
            size: Some(image.len() as u64),
            chunks: None,
        }
    }

    fn image() -> Vec<u8> {
        let mut image: Vec<u8> = (0..(5 << 20) + 77)
            .map(|at: u32| (at.wrapping_mul(at) >> 7) as u8)
            .collect();
        image[1 << 20..3 << 20].fill(0);
        image
    }

    #[test]
    fn an_image_is_unpacked_into_the_writer() {
        let image = image();
        let mut disk = MemoryDisk::filled(8 << 20, 7);
        let mut writer = ImageWriter::begin(&mut disk, expected(&image)).unwrap();
        let mut decoder = PackedImageDecoder::new().unwrap();
        for piece in packed(&image, 20).chunks(1000) {
            decoder.push(piece, &mut writer).unwrap();
        }
        decoder.finish().unwrap();
        writer.finish(ReadBackCheck::Everything).unwrap();
        assert_eq!(disk.data[..image.len()], image);
    }

    #[test]
    fn damaged_and_truncated_images_are_refused() {
        let image = image();
        let good = packed(&image, 20);
        let mut disk = MemoryDisk::filled(8 << 20, 7);
        let mut writer = ImageWriter::begin(&mut disk, expected(&image)).unwrap();
        let mut decoder = PackedImageDecoder::new().unwrap();
        decoder.push(&good[..good.len() / 2], &mut writer).unwrap();
        assert_eq!(decoder.finish(), Err(PackedImageError::Cut));
        let mut decoder = PackedImageDecoder::new().unwrap();
        let refused = decoder.push(b"not a packed image", &mut writer);
        assert!(
            matches!(refused, Err(PackedImageError::Damaged(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn windows_larger_than_those_of_http_and_images_that_are_too_long_are_refused() {
        let long = vec![1; 20 << 20];
        let mut disk = MemoryDisk::filled(4 << 20, 7);
        let mut writer = ImageWriter::begin(&mut disk, expected(&[1; 512])).unwrap();
        let mut decoder = PackedImageDecoder::new().unwrap();
        let refused = decoder.push(&packed(&long, 24), &mut writer);
        assert!(
            matches!(refused, Err(PackedImageError::Damaged(_))),
            "{refused:?}"
        );
        let mut decoder = PackedImageDecoder::new().unwrap();
        let refused = decoder.push(&packed(&long, 20), &mut writer);
        let too_long = ImageWriteError::TooLong { size: 512 };
        assert_eq!(refused, Err(PackedImageError::Image(too_long)));
    }
}
