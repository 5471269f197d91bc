//! The library with a simulated shell: virtual time, sources with faults, files that lose what was
//! not synced.

mod disks;
mod fetches;
mod registries;
mod seeds;
mod uploads;

use trivet_chunks::DigestAlgorithm;
use trivet_model::image::ImageState;

use super::*;
use crate::ImageFormat;
use crate::simulated::{
    SIM_SCALE, SimImageDisk, SimImageRead, SimImageShell, SimImageSource, sim_digest, sim_pack,
};

/// Simulated bytes of one chunk.
const CHUNK: usize = 1024;

/// Three chunks and a part of one.
fn content(seed: u8) -> Vec<u8> {
    (0..3 * CHUNK + 77)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

fn sha256(bytes: &[u8]) -> Digest {
    sim_digest(DigestAlgorithm::Sha256, bytes)
}

fn spec(name: &str, bytes: &[u8]) -> ImageSpec {
    ImageSpec {
        name: name.to_owned(),
        digest: sha256(bytes),
        sources: vec![format!("http://far/{name}")],
        format: ImageFormat::Raw,
    }
}

fn options() -> ImageLibraryOptions {
    ImageLibraryOptions {
        retry_delay_ms: RETRY_DELAY_MS,
        ..ImageLibraryOptions::default()
    }
}

/// A library with its shell.
struct LibraryBench {
    library: ImageLibrary,
    shell: SimImageShell,
    now: Now,
    news: Vec<ImageNews>,
    answers: Vec<ImageUrlAnswer>,
}

impl LibraryBench {
    fn new(options: ImageLibraryOptions) -> Self {
        Self::with_disk(options, SimImageDisk::new(1 << 30))
    }

    fn with_disk(options: ImageLibraryOptions, disk: SimImageDisk) -> Self {
        let mut bench = Self {
            library: ImageLibrary::new(options),
            shell: SimImageShell::new(disk),
            now: Now {
                tick: Tick(1),
                wall: UnixMs(1),
            },
            news: Vec::new(),
            answers: Vec::new(),
        };
        bench.library.start();
        bench.pump();
        bench.step_until(|bench| bench.library.is_open);
        bench
    }

    /// The same disk after a power cut.
    fn restarted(mut self, options: ImageLibraryOptions) -> Self {
        self.shell.disk.cut_power(500, false);
        let mut bench = Self::with_disk(options, self.shell.disk);
        bench.shell.sources = self.shell.sources;
        bench
    }

    /// A source for this image.
    fn serve(&mut self, spec: &ImageSpec, bytes: &[u8]) {
        let source = SimImageSource::new(bytes.to_vec());
        self.shell.sources.insert(spec.sources[0].clone(), source);
    }

    fn source(&mut self, spec: &ImageSpec) -> &mut SimImageSource {
        self.shell.sources.get_mut(&spec.sources[0]).unwrap()
    }

    fn want(&mut self, spec: &ImageSpec, is_urgent: bool) {
        self.library.want(self.now, spec, is_urgent);
        self.pump();
    }

    fn read(&mut self, spec: &ImageSpec) -> Result<ImageReadGrant, String> {
        let grant = self.library.read(self.now, spec);
        self.pump();
        grant
    }

    /// What a new reader gets in the end.
    fn read_all(&mut self, spec: &ImageSpec) -> Result<Vec<u8>, String> {
        let mut grant = self.read(spec)?;
        for _ in 0..2000 {
            match self.shell.read(grant.entry) {
                SimImageRead::Pending => {}
                SimImageRead::Failed(why) => return Err(why),
                SimImageRead::Whole(bytes) => return Ok(bytes),
            }
            if !self.step() {
                break;
            }
            if !self.library.entries.contains_key(&grant.entry) {
                grant = self.read(spec)?;
            }
        }
        panic!("the reader waits without end: {:?}", self.library);
    }

    fn pump(&mut self) {
        for order in self.library.take_orders() {
            self.shell.carry_out(self.now.tick, order);
        }
        self.news.extend(self.library.take_news());
        self.answers.extend(self.library.take_url_answers());
    }

    /// Advances to the next event; false if there is none.
    fn step(&mut self) -> bool {
        let next = self.library.deadline().into_iter();
        let Some(at) = next.chain(self.shell.deadline()).min() else {
            return false;
        };
        let wait_ms = at.since_ms(self.now.tick);
        self.now.tick = self.now.tick.after_ms(wait_ms);
        self.now.wall = UnixMs(self.now.wall.0 + wait_ms);
        for report in self.shell.poll(self.now.tick) {
            self.library.handle(self.now, report);
            self.pump();
        }
        if self
            .library
            .deadline()
            .is_some_and(|at| at <= self.now.tick)
        {
            self.library.tick(self.now);
        }
        self.pump();
        true
    }

    #[track_caller]
    fn step_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..5000 {
            if done(self) {
                return;
            }
            assert!(self.step(), "nothing is due: {:?}", self.library);
        }
        panic!("it does not end: {:?}", self.library);
    }

    /// Until nothing is under way.
    fn run(&mut self) {
        for _ in 0..5000 {
            if self.shell.deadline().is_none() && self.library.timers.is_empty() {
                return;
            }
            self.step();
        }
        panic!("it does not end: {:?}", self.library);
    }

    fn state(&self, spec: &ImageSpec) -> Option<ImageState> {
        self.library
            .status(spec.key(), spec.format)
            .map(|status| status.state)
    }

    fn wait_ms(&mut self, ms: u64) {
        self.now.tick = self.now.tick.after_ms(ms);
        self.now.wall = UnixMs(self.now.wall.0 + ms);
    }
}

#[test]
fn an_image_is_fetched_once_and_read_by_all() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    let first = bench.read(&spec).unwrap();
    let second = bench.read(&spec).unwrap();
    assert_eq!(first, second, "one fill, however many read");
    assert_eq!(bench.read_all(&spec), Ok(bytes.clone()));
    assert_eq!(bench.state(&spec), Some(ImageState::Complete));
    let status = bench.library.status(spec.key(), spec.format).unwrap();
    assert_eq!(status.size, Some(bytes.len() as u64 * SIM_SCALE));
    assert_eq!(bench.library.chunk_list(&spec), Some(spec.key()));
}

#[test]
fn every_request_is_answered_under_its_own_name() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let one = spec("a.raw", &bytes);
    bench.serve(&one, &bytes);
    bench.want(&one, true);
    let other = ImageSpec {
        name: "b.raw".to_owned(),
        ..one.clone()
    };
    bench.want(&other, true);
    bench.run();
    let complete = |name: &str, bench: &LibraryBench| {
        let is_it = |news: &&ImageNews| {
            news.status.name == name && news.status.state == ImageState::Complete
        };
        bench.news.iter().filter(is_it).count()
    };
    assert!(complete("a.raw", &bench) > 0 && complete("b.raw", &bench) > 0);
    bench.news.clear();
    bench.want(&other, false);
    assert_eq!(complete("b.raw", &bench), 1, "nothing had to be done");
    assert!(!bench.news[0].is_new_state);
}

#[test]
fn a_wrong_image_is_refused_until_it_is_right() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &content(2));
    let why = bench.read_all(&spec).unwrap_err();
    assert!(why.contains("wrong digest"), "{why}");
    assert!(bench.library.wrong(&spec).is_some());
    assert!(matches!(bench.state(&spec), Some(ImageState::Wrong(_))));
    assert_eq!(bench.library.chunk_list(&spec), None);
    // Readers get the reason until the retry delay is over; an order retries at once.
    bench.source(&spec).content.clone_from(&bytes);
    bench.wait_ms(RETRY_DELAY_MS);
    assert!(bench.read_all(&spec).is_err(), "an operator must act first");
    bench.want(&spec, false);
    bench.run();
    assert_eq!(bench.library.wrong(&spec), None);
    assert_eq!(bench.read_all(&spec), Ok(bytes));
}

#[test]
fn a_wrong_file_at_one_source_does_not_refuse_another_source() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let wrong = spec("other.raw", &bytes);
    bench.serve(&wrong, &content(2));
    bench.read_all(&wrong).unwrap_err();
    let right = spec("a.raw", &bytes);
    assert_ne!(right.sources, wrong.sources);
    assert!(bench.library.wrong(&wrong).is_some());
    assert_eq!(bench.library.wrong(&right), None);
    let without = ImageSpec {
        sources: Vec::new(),
        ..right.clone()
    };
    assert!(bench.library.wrong(&without).is_some());
    // The new source is fetched; if it is wrong too, both are refused.
    bench.serve(&right, &content(3));
    bench.want(&right, true);
    bench.run();
    assert!(bench.library.wrong(&right).is_some());
    assert!(bench.library.wrong(&wrong).is_some());
    bench.source(&right).content.clone_from(&bytes);
    bench.want(&right, true);
    bench.run();
    assert_eq!(bench.library.wrong(&right), None);
    assert_eq!(bench.read_all(&right), Ok(bytes));
}

#[test]
fn a_failed_image_is_retried_by_readers_after_a_delay() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    bench.source(&spec).is_gone = true;
    let why = bench.read_all(&spec).unwrap_err();
    assert!(why.contains("cannot be fetched"), "{why}");
    bench.source(&spec).is_gone = false;
    assert!(bench.read_all(&spec).is_err());
    bench.wait_ms(RETRY_DELAY_MS);
    assert_eq!(bench.read_all(&spec), Ok(bytes));
}

#[test]
fn images_that_nobody_waits_for_are_fetched_in_their_hours() {
    let window = ImageFillWindow {
        from_minute: 60,
        to_minute: 120,
    };
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        window: Some(window),
        ..options()
    });
    let bytes = content(1);
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    bench.want(&spec, false);
    bench.step_until(|bench| bench.now.wall.0 >= 59 * 60_000);
    assert_ne!(bench.state(&spec), Some(ImageState::Complete));
    bench.step_until(|bench| bench.state(&spec) == Some(ImageState::Complete));
    assert!(bench.now.wall.0 >= 60 * 60_000);
    // A reader does not wait for the hours.
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        window: Some(window),
        ..options()
    });
    bench.serve(&spec, &bytes);
    bench.want(&spec, false);
    for _ in 0..10 {
        bench.step();
    }
    assert_eq!(bench.read_all(&spec), Ok(bytes));
    assert!(bench.now.wall.0 < 59 * 60_000);
}

#[test]
fn requests_before_the_files_are_known_wait() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    bench.want(&spec, true);
    bench.run();
    let sources = std::mem::take(&mut bench.shell.sources);
    let mut library = ImageLibrary::new(options());
    library.start();
    library.want(bench.now, &spec, true);
    assert!(
        library
            .read(bench.now, &spec)
            .unwrap_err()
            .contains("retry")
    );
    let mut again = LibraryBench {
        library,
        shell: SimImageShell::new(bench.shell.disk),
        now: bench.now,
        news: Vec::new(),
        answers: Vec::new(),
    };
    again.pump();
    again.run();
    assert_eq!(again.read_all(&spec), Ok(bytes), "it was not fetched again");
    drop(sources);
}

#[test]
fn bit_rot_is_repaired_when_an_agent_doubts_and_by_the_scrub() {
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        scrub_ms: Some(3_600_000),
        ..options()
    });
    let bytes = content(1);
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    bench.want(&spec, true);
    bench.run();
    assert!(bench.shell.disk.rot(spec.key(), CHUNK + 5));
    bench.news.clear();
    bench.library.verify_again(bench.now, &spec);
    bench.pump();
    bench.run();
    let states: Vec<_> = bench.news.iter().map(|news| &news.status.state).collect();
    assert!(states.contains(&&ImageState::Corrupt(1)), "{states:?}");
    assert_eq!(bench.read_all(&spec), Ok(bytes.clone()));
    assert!(bench.shell.disk.rot(spec.key(), 5));
    bench.step_until(|bench| bench.now.tick.0 > 3_600_000);
    bench.run();
    assert_eq!(bench.shell.disk.bytes_of(spec.key()), Some(&bytes[..]));
    // A doubt about a right image is answered too.
    bench.news.clear();
    bench.library.verify_again(bench.now, &spec);
    bench.pump();
    bench.run();
    assert!(!bench.news.is_empty());
}

#[test]
fn the_least_recently_used_image_makes_space_unless_it_is_pinned_or_read() {
    let bytes: Vec<Vec<u8>> = (1..=4).map(content).collect();
    let size = bytes[0].len() as u64 * SIM_SCALE;
    let mut bench = LibraryBench::new(ImageLibraryOptions {
        quota_bytes: Some(2 * size + size / 2),
        ..options()
    });
    let specs: Vec<_> = (0..4)
        .map(|at| spec(&format!("{at}.raw"), &bytes[at]))
        .collect();
    for (spec, bytes) in specs.iter().zip(&bytes) {
        bench.serve(spec, bytes);
    }
    for at in 0..3 {
        bench.wait_ms(10);
        assert_eq!(bench.read_all(&specs[at]), Ok(bytes[at].clone()));
    }
    assert_eq!(bench.state(&specs[0]), None, "it was evicted");
    let evicted = |news: &ImageNews| news.status.state == ImageState::Evicted;
    assert!(bench.news.iter().any(evicted));
    assert_eq!(bench.shell.disk.whole_images().len(), 2);
    bench.library.pin(&[specs[1].digest]);
    let grant = bench.read(&specs[2]).unwrap();
    bench.shell.count_reader(grant.entry, true);
    let why = bench.read_all(&specs[3]).unwrap_err();
    assert!(why.contains("no space") && why.contains("1.raw"), "{why}");
    bench.shell.count_reader(grant.entry, false);
    bench.want(&specs[3], true);
    bench.run();
    assert_eq!(bench.state(&specs[3]), Some(ImageState::Complete));
    assert_eq!(bench.state(&specs[2]), None);
}

#[test]
fn an_image_that_is_dropped_leaves_nothing_even_while_it_is_fetched() {
    let (mut bench, bytes) = (LibraryBench::new(options()), content(1));
    let spec = spec("a.raw", &bytes);
    bench.serve(&spec, &bytes);
    let grant = bench.read(&spec).unwrap();
    for _ in 0..12 {
        bench.step();
    }
    bench.library.drop_image(bench.now, spec.digest);
    bench.pump();
    bench.run();
    assert!(matches!(
        bench.shell.read(grant.entry),
        SimImageRead::Failed(_)
    ));
    assert_eq!(bench.shell.disk.free_bytes(), 1 << 30);
    assert!(bench.library.images.is_empty() && bench.library.entries.is_empty());
    assert_eq!(
        bench.read_all(&spec),
        Ok(bytes),
        "a later request is a new fill"
    );
}

#[test]
fn a_full_library_refuses_another_image() {
    let mut bench = LibraryBench::new(options());
    for number in 0..LIBRARY_IMAGES_MAX {
        let key = ImageKey::of_url(&number.to_string());
        let metadata = ImageMetadata::new(&ImageSpec {
            name: number.to_string(),
            digest: key.0,
            sources: Vec::new(),
            format: ImageFormat::Raw,
        });
        let image = LibraryImage::new(metadata, ImageEntryId(0), ImagePhase::Whole);
        bench.library.images.insert(key, image);
    }
    let why = bench.read(&spec("a.raw", b"a")).unwrap_err();
    assert!(why.contains("4096 images"), "{why}");
}
