//! Packed images and the disks in them.

use super::*;

fn packed(name: &str, raw: &[u8]) -> (ImageSpec, Vec<u8>) {
    let bytes = sim_pack(raw);
    let spec = ImageSpec {
        format: ImageFormat::Gzip,
        ..spec(name, &bytes)
    };
    (spec, bytes)
}

fn raw_spec(raw: &[u8]) -> ImageSpec {
    ImageSpec {
        sources: Vec::new(),
        ..spec("own.raw", raw)
    }
}

#[test]
fn readers_of_a_packed_image_get_the_disk_in_it() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let (spec, bytes) = packed("a.gz", &raw);
    bench.serve(&spec, &bytes);
    bench.want(&spec, true);
    assert_eq!(bench.read_all(&spec), Ok(raw.clone()));
    bench.run();
    let states: Vec<_> = bench.news.iter().map(|news| &news.status.state).collect();
    assert!(states.contains(&&ImageState::Unpacking), "{states:?}");
    let complete = |news: &&ImageNews| news.status.state == ImageState::Complete;
    for news in bench.news.iter().filter(complete) {
        let disk = news.status.raw.expect("not complete before its disk is");
        assert_eq!(disk.digest, sha256(&raw));
    }
    assert_eq!(
        bench.library.chunk_list(&spec),
        Some(ImageKey(sha256(&raw)))
    );
    assert_eq!(
        bench.read_all(&raw_spec(&raw)),
        Ok(raw),
        "an image by itself"
    );
}

#[test]
fn a_packed_image_that_is_wrong_is_never_unpacked() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let (spec, _) = packed("a.gz", &raw);
    bench.serve(&spec, &content(3));
    let why = bench.read_all(&spec).unwrap_err();
    assert!(why.contains("wrong digest"), "{why}");
    let unpacks = |news: &ImageNews| news.status.state == ImageState::Unpacking;
    assert!(!bench.news.iter().any(unpacks));
}

#[test]
fn an_image_that_is_not_packed_as_declared_is_wrong() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let mut declared = spec("a.gz", &raw);
    declared.format = ImageFormat::Gzip;
    bench.serve(&declared, &raw);
    let why = bench.read_all(&declared).unwrap_err();
    assert!(why.contains("not packed"), "{why}");
    assert!(bench.library.wrong(&declared).is_some());
    // With the right format it is the same bytes.
    let right = spec("a.gz", &raw);
    assert_eq!(bench.read_all(&right), Ok(raw));
    assert!(bench.library.wrong(&right).is_none());
    assert!(
        bench.library.wrong(&declared).is_some(),
        "still wrong for that"
    );
}

#[test]
fn the_packed_image_is_evicted_before_its_disk() {
    let raw = content(1);
    let (spec, bytes) = packed("a.gz", &raw);
    let size = bytes.len() as u64 * SIM_SCALE;
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        quota_bytes: Some(2 * size + size / 2),
        ..options()
    });
    bench.serve(&spec, &bytes);
    assert_eq!(bench.read_all(&spec), Ok(raw.clone()));
    let other = content(5);
    let plain = super::spec("b.raw", &other);
    bench.serve(&plain, &other);
    bench.wait_ms(10);
    assert_eq!(bench.read_all(&plain), Ok(other));
    assert!(!bench.library.images.contains_key(&spec.key()));
    assert_eq!(bench.state(&spec), Some(ImageState::Complete));
    bench.shell.sources.clear();
    assert_eq!(bench.read_all(&spec), Ok(raw), "nodes read only the disk");
}

#[test]
fn a_disk_that_has_changed_is_repaired_from_its_image() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let (spec, bytes) = packed("a.gz", &raw);
    bench.serve(&spec, &bytes);
    assert_eq!(bench.read_all(&spec), Ok(raw.clone()));
    bench.shell.disk.rot(ImageKey(sha256(&raw)), CHUNK + 1);
    bench.news.clear();
    bench.library.verify_again(bench.now, &spec);
    bench.pump();
    bench.run();
    assert_eq!(bench.read_all(&spec), Ok(raw.clone()));
    let corrupt = |news: &ImageNews| news.status.state == ImageState::Corrupt(1);
    assert!(bench.news.iter().any(corrupt));
    // After a restart too, and with the packed image fetched again.
    bench.shell.disk.rot(ImageKey(sha256(&raw)), 0);
    bench.shell.disk.delete(spec.key());
    let mut bench = bench.restarted(options());
    assert_eq!(bench.read_all(&spec), Ok(raw));
}

#[test]
fn a_disk_that_cannot_be_repaired_fails_with_the_reason() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let (spec, bytes) = packed("a.gz", &raw);
    bench.serve(&spec, &bytes);
    assert_eq!(bench.read_all(&spec), Ok(raw.clone()));
    bench.shell.sources.clear();
    bench.shell.disk.delete(spec.key());
    bench.shell.disk.rot(ImageKey(sha256(&raw)), 7);
    let mut bench = bench.restarted(options());
    let why = bench.read_all(&spec).unwrap_err();
    assert!(why.contains("cannot be fetched"), "{why}");
    assert!(matches!(bench.state(&spec), Some(ImageState::Failed(_))));
}

/// A seed of tests/sim: the packed image rotted while its source had another file. It was shown as
/// wrong for ever, although nodes read only the disk, which was right.
#[test]
fn a_packed_image_that_is_lost_does_not_matter_while_its_disk_is_here() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let (spec, bytes) = packed("a.gz", &raw);
    bench.serve(&spec, &bytes);
    assert_eq!(bench.read_all(&spec), Ok(raw.clone()));
    bench.shell.disk.rot(spec.key(), 3);
    bench.serve(&spec, &content(4));
    let mut bench = bench.restarted(options());
    bench.run();
    bench.want(&spec, true);
    bench.run();
    assert_eq!(bench.state(&spec), Some(ImageState::Complete));
    assert_eq!(bench.library.wrong(&spec), None);
    assert_eq!(bench.read_all(&spec), Ok(raw));
}

#[test]
fn an_image_from_two_sources_is_stored_once_and_goes_with_its_disk() {
    let (mut bench, raw) = (LibraryBench::new(options()), content(1));
    let (one, bytes) = packed("a.gz", &raw);
    bench.serve(&one, &bytes);
    // The same bytes at another source.
    let other = ImageSpec {
        sources: vec!["http://far/b.gz".to_owned()],
        ..one.clone()
    };
    assert_eq!(bench.read_all(&one), Ok(raw.clone()));
    assert_eq!(bench.read_all(&other), Ok(raw.clone()));
    assert_eq!(bench.shell.disk.whole_images().len(), 2);
    bench.library.drop_image(bench.now, one.digest);
    bench.pump();
    bench.run();
    assert!(bench.shell.disk.whole_images().is_empty());
    assert!(bench.library.disks.is_empty());
}

#[test]
fn unpacking_without_space_fails_and_an_order_retries_it() {
    let raw = content(1);
    let (spec, bytes) = packed("a.gz", &raw);
    let size = bytes.len() as u64 * SIM_SCALE;
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        quota_bytes: Some(size + size / 2),
        ..options()
    });
    bench.serve(&spec, &bytes);
    let why = bench.read_all(&spec).unwrap_err();
    assert!(why.contains("no space"), "{why}");
    bench.library.options.quota_bytes = None;
    assert!(bench.read_all(&spec).is_err(), "it rests");
    bench.want(&spec, true);
    assert_eq!(bench.read_all(&spec), Ok(raw));
}
