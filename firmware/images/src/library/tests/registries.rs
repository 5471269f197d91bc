//! Images in registries.

use trivet_oci::{OciError, OciImage, OciQuery, RegistryCredentials};

use super::*;
use crate::simulated::sim_manifest;

const REFERENCE: &str = "oci://h:5000/team/disk:12";

fn query(secret: Option<&str>) -> OciQuery {
    OciQuery {
        reference: REFERENCE.parse().unwrap(),
        architecture: None,
        format: None,
        credentials: secret.and_then(RegistryCredentials::of_pull_secret),
    }
}

fn resolve(bench: &mut LibraryBench, query: OciQuery) -> Result<OciImage, OciError> {
    bench.library.resolve_oci(query.clone());
    bench.pump();
    bench.run();
    let found = bench.library.take_resolutions();
    let [found] = &found[..] else {
        panic!("one answer: {found:?}");
    };
    assert_eq!(found.query, query);
    found.result.clone()
}

fn serve(bench: &mut LibraryBench, bytes: &[u8], secret: Option<&str>) {
    let mut source = SimImageSource::new(bytes.to_vec());
    source.pull_secret = secret.map(str::to_owned);
    bench.shell.sources.insert(REFERENCE.to_owned(), source);
}

fn layer(image: &OciImage) -> ImageSpec {
    ImageSpec {
        name: "disk".to_owned(),
        digest: image.layer,
        sources: vec![REFERENCE.to_owned()],
        format: image.format,
    }
}

#[test]
fn a_tag_is_resolved_and_its_layer_is_fetched_by_digest() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    serve(&mut bench, &bytes, None);
    let image = resolve(&mut bench, query(None)).unwrap();
    assert_eq!(image.manifest, sim_manifest(&bytes));
    assert_eq!(bench.read_all(&layer(&image)), Ok(bytes.clone()));
    // The tag moves: what is resolved stays what it is, and is refused with other bytes.
    serve(&mut bench, &content(2), None);
    bench.library.drop_image(bench.now, image.layer);
    bench.pump();
    let why = bench.read_all(&layer(&image)).unwrap_err();
    assert!(
        why.contains("wrong digest") && why.contains(REFERENCE),
        "{why}"
    );
    let moved = resolve(&mut bench, query(None)).unwrap();
    assert_ne!(moved.layer, image.layer);
    assert_eq!(bench.read_all(&layer(&moved)), Ok(content(2)));
}

#[test]
fn a_layer_is_fetched_with_the_secret_of_its_lookup() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    serve(&mut bench, &bytes, Some("pw"));
    let why = resolve(&mut bench, query(None)).unwrap_err();
    assert!(matches!(why, OciError::NoCredentials { .. }), "{why}");
    assert!(resolve(&mut bench, query(Some("ann:wrong"))).is_err());
    let image = resolve(&mut bench, query(Some("ann:pw"))).unwrap();
    assert_eq!(bench.read_all(&layer(&image)), Ok(bytes.clone()));
    // After a restart the shell does not know the secret until it is told again.
    let mut bench = bench.restarted(options());
    bench.library.drop_image(bench.now, image.layer);
    bench.pump();
    assert!(bench.read_all(&layer(&image)).is_err());
    let secret = RegistryCredentials::of_pull_secret("ann:pw").unwrap();
    let reference = REFERENCE.parse().unwrap();
    bench.library.use_pull_secret(reference, secret);
    bench.want(&layer(&image), true);
    bench.run();
    assert_eq!(bench.read_all(&layer(&image)), Ok(bytes));
}

#[test]
fn a_packed_layer_is_unpacked() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    serve(&mut bench, &sim_pack(&bytes), None);
    let image = resolve(&mut bench, query(None)).unwrap();
    assert!(image.format.is_packed());
    assert_eq!(bench.read_all(&layer(&image)), Ok(bytes));
}

#[test]
fn a_reference_with_another_digest_is_refused() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    serve(&mut bench, &bytes, None);
    let mut requested = query(None);
    requested.reference = requested.reference.with_digest(sim_manifest(&content(2)));
    let why = resolve(&mut bench, requested.clone()).unwrap_err();
    assert!(matches!(why, OciError::ManifestDigest { .. }), "{why}");
    requested.reference = requested.reference.with_digest(sim_manifest(&bytes));
    assert!(resolve(&mut bench, requested.clone()).is_ok());
    bench.shell.sources.clear();
    assert!(!resolve(&mut bench, requested).unwrap_err().is_final());
}
