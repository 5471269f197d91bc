//! Files that are known by their URLs only.

use super::*;

const URL: &str = "http://far/ramdisk.gz";

fn fetch(bench: &mut LibraryBench) -> Result<FetchedFile, String> {
    bench.answers.clear();
    let format = ImageFormat::Ramdisk;
    bench.library.fetch_url(bench.now, URL, format);
    bench.pump();
    bench.step_until(|bench| !bench.answers.is_empty());
    bench.run();
    bench.answers[0].result.clone()
}

fn serve(bench: &mut LibraryBench, bytes: &[u8]) {
    let source = SimImageSource::new(bytes.to_vec());
    bench.shell.sources.insert(URL.to_owned(), source);
}

fn fresh(bytes: &[u8]) -> FetchedFile {
    FetchedFile {
        digest: sha256(bytes),
        old: None,
        has_validator: true,
    }
}

#[test]
fn a_file_becomes_the_image_of_its_digest_and_is_then_only_compared() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    serve(&mut bench, &bytes);
    assert_eq!(fetch(&mut bench), Ok(fresh(&bytes)));
    let key = ImageKey(sha256(&bytes));
    assert_eq!(bench.shell.disk.bytes_of(key), Some(&bytes[..]));
    assert_eq!(
        bench
            .library
            .status(key, ImageFormat::Ramdisk)
            .unwrap()
            .state,
        ImageState::Complete
    );
    assert_eq!(fetch(&mut bench), Ok(fresh(&bytes)));
    let mut bench = bench.restarted(options());
    assert_eq!(fetch(&mut bench), Ok(fresh(&bytes)));
}

#[test]
fn a_changed_file_is_fetched_again_and_an_unreachable_source_leaves_the_copy() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    serve(&mut bench, &bytes);
    fetch(&mut bench).unwrap();
    let other = content(2);
    serve(&mut bench, &other);
    bench.shell.sources.get_mut(URL).unwrap().validator = Some("\"two\"".to_owned());
    bench.wait_ms(5);
    assert_eq!(fetch(&mut bench), Ok(fresh(&other)));
    bench.shell.sources.clear();
    let found = fetch(&mut bench).unwrap();
    assert_eq!(found.digest, sha256(&other));
    assert!(found.old.unwrap().contains("fetched earlier"));
}

#[test]
fn a_source_that_fails_is_retried_and_then_named() {
    let mut bench = LibraryBench::new(options());
    let why = fetch(&mut bench).unwrap_err();
    assert!(why.starts_with(URL) && why.contains("route"), "{why}");
    let bytes = content(1);
    serve(&mut bench, &bytes);
    bench.shell.sources.get_mut(URL).unwrap().cut_after = Some(100);
    let why = fetch(&mut bench).unwrap_err();
    assert!(why.contains("disconnected"), "{why}");
    assert_eq!(bench.shell.disk.free_bytes(), 1 << 30, "nothing is left");
    serve(&mut bench, b"");
    let why = fetch(&mut bench).unwrap_err();
    assert!(why.contains("is empty"), "{why}");
}

#[test]
fn a_source_without_a_size_must_not_fill_the_disk() {
    let bytes: Vec<u8> = content(1).repeat(8);
    let size = bytes.len() as u64 * SIM_SCALE;
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        quota_bytes: Some(size / 2),
        ..options()
    });
    serve(&mut bench, &bytes);
    bench.shell.sources.get_mut(URL).unwrap().announces_size = false;
    let why = fetch(&mut bench).unwrap_err();
    assert!(why.contains("no space"), "{why}");
    bench.library.options.quota_bytes = None;
    assert_eq!(fetch(&mut bench), Ok(fresh(&bytes)));
}

#[test]
fn a_file_whose_bytes_are_an_image_already_is_that_image() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    bench.want(&spec, true);
    bench.run();
    serve(&mut bench, &bytes);
    assert_eq!(fetch(&mut bench), Ok(fresh(&bytes)));
    assert_eq!(bench.library.images.len(), 1);
    let sources = &bench.library.images[&spec.key()].metadata.spec.sources;
    assert_eq!(sources.len(), 2, "{sources:?}");
}
