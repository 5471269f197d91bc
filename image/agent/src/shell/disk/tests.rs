use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A disk file that is removed with the test.
pub(crate) struct ScratchDiskFile(pub(crate) PathBuf);

impl ScratchDiskFile {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("trivet-agent-{}-{serial}.disk", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for ScratchDiskFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An image of this length with a boot sector.
pub(crate) fn image(bytes: usize) -> Vec<u8> {
    let mut image: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251 + 1) as u8).collect();
    image[440..444].copy_from_slice(&[0x4d, 0x3c, 0x2b, 0x1a]);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    Digest::Sha256(Sha256::digest(bytes).into())
}

async fn write(
    disk: &AgentTargetDisk,
    want: Digest,
    image: &[u8],
    piece: usize,
) -> Result<AgentWrittenImage, AgentWorkError> {
    let mut writer = disk.writer(want).await;
    for piece in image.chunks(piece) {
        if writer.push(Bytes::copy_from_slice(piece)).await.is_err() {
            break;
        }
    }
    writer.finish().await
}

fn head_is_zero(scratch: &ScratchDiskFile) -> bool {
    scratch.bytes()[..HEAD_BYTES].iter().all(|&byte| byte == 0)
}

#[tokio::test]
async fn writes_an_image_in_pieces_of_any_size() {
    let image = image(HEAD_BYTES * 2 + 77);
    for piece in [4096, HEAD_BYTES + 1, image.len()] {
        let scratch = ScratchDiskFile::new();
        let disk = AgentTargetDisk::file(scratch.0.clone(), 4 * HEAD_BYTES as u64);
        let written = write(&disk, sha256(&image), &image, piece).await.unwrap();
        assert_eq!(written.bytes, image.len() as u64);
        assert_eq!(written.disk.root_uuid.as_deref(), Some("0x1a2b3c4d"));
        let found = scratch.bytes();
        assert_eq!(found.len(), 4 * HEAD_BYTES);
        assert!(found.starts_with(&image));
    }
}

#[tokio::test]
async fn checks_sha512_and_images_shorter_than_the_head() {
    let image = image(600);
    let scratch = ScratchDiskFile::new();
    let disk = AgentTargetDisk::file(scratch.0.clone(), 600);
    let digest = Digest::Sha512(Sha512::digest(&image).into());
    assert_eq!(
        write(&disk, digest, &image, 100).await.unwrap().digest,
        digest
    );
    assert_eq!(scratch.bytes(), image);
}

#[tokio::test]
async fn a_wrong_image_does_not_boot_nor_does_the_old_system() {
    let scratch = ScratchDiskFile::new();
    let disk = AgentTargetDisk::file(scratch.0.clone(), 3 * HEAD_BYTES as u64);
    let old = image(2 * HEAD_BYTES);
    write(&disk, sha256(&old), &old, 65536).await.unwrap();
    let failure = write(&disk, sha256(b"other"), &old, 65536)
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), "ImageChecksumError");
    assert!(head_is_zero(&scratch));
}

#[tokio::test]
async fn an_interrupted_image_does_not_boot() {
    let scratch = ScratchDiskFile::new();
    let disk = AgentTargetDisk::file(scratch.0.clone(), 3 * HEAD_BYTES as u64);
    let image = image(2 * HEAD_BYTES);
    let mut writer = disk.writer(sha256(&image)).await;
    writer.push(Bytes::from(image)).await.unwrap();
    drop(writer);
    disk.wait_until_idle().await;
    assert!(head_is_zero(&scratch));
}

#[tokio::test]
async fn an_image_may_fill_the_disk_and_not_exceed_it() {
    let scratch = ScratchDiskFile::new();
    let image = image(HEAD_BYTES + 10);
    let disk = AgentTargetDisk::file(scratch.0.clone(), image.len() as u64);
    assert!(write(&disk, sha256(&image), &image, 65536).await.is_ok());
    let small = AgentTargetDisk::file(scratch.0.clone(), image.len() as u64 - 1);
    let failure = write(&small, sha256(&image), &image, 65536)
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("longer than the disk"),
        "{failure}"
    );
}

#[tokio::test]
async fn erases_both_ends_or_everything() {
    let scratch = ScratchDiskFile::new();
    let image = image(4 * HEAD_BYTES);
    let disk = AgentTargetDisk::file(scratch.0.clone(), image.len() as u64);
    write(&disk, sha256(&image), &image, 65536).await.unwrap();
    disk.erase(false).await.unwrap();
    let found = scratch.bytes();
    let zero = |range: std::ops::Range<usize>| found[range].iter().all(|&byte| byte == 0);
    assert!(zero(0..HEAD_BYTES) && zero(3 * HEAD_BYTES..4 * HEAD_BYTES));
    assert_eq!(
        found[HEAD_BYTES..3 * HEAD_BYTES],
        image[HEAD_BYTES..3 * HEAD_BYTES]
    );
    disk.erase(true).await.unwrap();
    let found = scratch.bytes();
    assert_eq!(found.len(), image.len());
    assert!(found.iter().all(|&byte| byte == 0));
}

#[tokio::test]
async fn a_missing_disk_fails_with_a_message() {
    let disk = AgentTargetDisk::file(PathBuf::from("/nonexistent/disk"), 1024);
    assert_eq!(
        disk.erase(true).await.unwrap_err().kind(),
        "BlockDeviceEraseError"
    );
    let image = image(600);
    let failure = write(&disk, sha256(&image), &image, 600).await.unwrap_err();
    assert_eq!(failure.kind(), "ImageWriteError");
}

#[test]
fn only_a_boot_sector_has_an_identifier() {
    assert_eq!(disk_identifier(&[0; 511]), None);
    assert_eq!(disk_identifier(&[0; 512]), None);
    assert_eq!(disk_identifier(&image(512)).as_deref(), Some("0x1a2b3c4d"));
}
