//! The cache with a library that gives it its orders, as the rack does in the product.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, oneshot};
use trivet_images::{
    FetchedFile, FileChecksum, ImageFormat, ImageKey, ImageLibrary, ImageLibraryOptions, ImageSpec,
    ImageUploadError, ImageUploadRange, ImageWorkOrder, ImageWorkReport, RETRY_DELAY_MS,
};
use trivet_model::Digest;
use trivet_model::image::{ImageState, ImageStatus};

use super::super::{ImageCache, ImageCacheOptions, ImageReader, ImageReports, records};
use super::{DaemonClock, Duration, Path};

/// Receives the news of the library.
pub(super) type NewsSink = Box<dyn Fn(ImageStatus) + Send + Sync>;

/// Options of cache and library together.
#[derive(Clone)]
pub(super) struct BenchOptions {
    pub(super) clock: DaemonClock,
    pub(super) scrub: Option<Duration>,
    pub(super) quota_bytes: Option<u64>,
    pub(super) reserve_bytes: u64,
    pub(super) retry_delay: Duration,
}

impl BenchOptions {
    pub(super) fn plain(clock: DaemonClock) -> Self {
        Self {
            clock,
            scrub: None,
            quota_bytes: None,
            reserve_bytes: 0,
            retry_delay: Duration::from_millis(RETRY_DELAY_MS),
        }
    }

    fn library(&self) -> ImageLibraryOptions {
        ImageLibraryOptions {
            window: None,
            scrub_ms: self.scrub.map(|every| every.as_millis() as u64),
            quota_bytes: self.quota_bytes,
            reserve_bytes: self.reserve_bytes,
            retry_delay_ms: self.retry_delay.as_millis() as u64,
        }
    }
}

/// The cache and its library.
#[derive(Clone)]
pub(super) struct CacheBench {
    pub(super) cache: ImageCache,
    shared: Arc<Shared>,
}

struct Shared {
    library: Mutex<ImageLibrary>,
    clock: DaemonClock,
    sink: NewsSink,
    log: Mutex<Vec<ImageStatus>>,
    reported: Notify,
    /// The library has a new deadline.
    changed: Notify,
    urls: Mutex<BTreeMap<String, oneshot::Sender<Result<FetchedFile, String>>>>,
    checksums: Mutex<Vec<oneshot::Sender<FileChecksum>>>,
}

impl CacheBench {
    pub(super) fn open(
        root: &Path,
        options: BenchOptions,
        sink: NewsSink,
    ) -> std::io::Result<Self> {
        let (cache, reports) = ImageCache::open(root, ImageCacheOptions::plain(options.clock))?;
        let bench = Self {
            cache,
            shared: Arc::new(Shared {
                library: Mutex::new(ImageLibrary::new(options.library())),
                clock: options.clock,
                sink,
                log: Mutex::default(),
                reported: Notify::new(),
                changed: Notify::new(),
                urls: Mutex::default(),
                checksums: Mutex::default(),
            }),
        };
        let found = Box::new(records::scan(root)?);
        bench.run(|library, now| library.handle(now, ImageWorkReport::Found(found)));
        tokio::spawn(bench.clone().drive(reports));
        Ok(bench)
    }

    /// Calls the library, and carries out what it orders.
    fn run<T>(&self, action: impl FnOnce(&mut ImageLibrary, trivet_model::Now) -> T) -> T {
        let mut library = self.shared.library.lock().unwrap();
        let result = action(&mut library, self.shared.clock.now());
        for order in library.take_orders() {
            self.cache.execute(order);
        }
        for news in library.take_news() {
            self.shared.log.lock().unwrap().push(news.status.clone());
            (self.shared.sink)(news.status);
        }
        for answer in library.take_url_answers() {
            if let Some(waits) = self.shared.urls.lock().unwrap().remove(&answer.url) {
                let _ = waits.send(answer.result);
            }
        }
        for found in library.take_checksums() {
            if let Some(waits) = self.shared.checksums.lock().unwrap().pop() {
                let _ = waits.send(found);
            }
        }
        drop(library);
        self.shared.reported.notify_waiters();
        self.shared.changed.notify_one();
        result
    }

    async fn drive(self, mut reports: ImageReports) {
        loop {
            let at = self.shared.library.lock().unwrap().deadline();
            let now = self.shared.clock.now().tick;
            let due = async {
                match at {
                    Some(at) => {
                        let wait = Duration::from_millis(at.since_ms(now));
                        tokio::time::sleep(wait).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                report = reports.recv() => match report {
                    Some(report) => self.run(|library, now| library.handle(now, report)),
                    None => return,
                },
                () = due => self.run(ImageLibrary::tick),
                () = self.shared.changed.notified() => {}
            }
        }
    }

    pub(super) fn reader(&self, wanted: &ImageSpec) -> Result<ImageReader, String> {
        let grant = self.run(|library, now| library.read(now, wanted))?;
        self.cache.reader(grant.entry)
    }

    pub(super) fn fill(&self, wanted: &ImageSpec) {
        self.run(|library, now| library.want(now, wanted, false));
    }

    /// Requests an image, and waits for the answer.
    pub(super) async fn ensure(&self, wanted: &ImageSpec) {
        let from = self.shared.log.lock().unwrap().len();
        self.run(|library, now| library.want(now, wanted, true));
        self.answered(wanted, from).await;
    }

    pub(super) async fn reverify(&self, wanted: &ImageSpec) {
        let from = self.shared.log.lock().unwrap().len();
        self.run(|library, now| library.verify_again(now, wanted));
        self.answered(wanted, from).await;
    }

    async fn answered(&self, wanted: &ImageSpec, from: usize) {
        let key = wanted.key().to_string();
        let is_answer = |news: &ImageStatus| {
            let is_final = news.state == ImageState::Complete || news.state.failure().is_some();
            news.key == key && news.name == wanted.name && is_final
        };
        loop {
            let reported = self.shared.reported.notified();
            if self.shared.log.lock().unwrap()[from..]
                .iter()
                .any(is_answer)
            {
                return;
            }
            reported.await;
        }
    }

    /// The images that were found at the start are verified without a request.
    pub(super) async fn resume_all(&self) {
        loop {
            let reported = self.shared.reported.notified();
            if !self.shared.library.lock().unwrap().is_resuming() {
                return;
            }
            reported.await;
        }
    }

    pub(super) fn pin(&self, digests: &[Digest]) {
        self.run(|library, _| library.pin(digests));
    }

    pub(super) fn drop_image(&self, key: ImageKey) {
        self.run(|library, now| library.drop_image(now, key.0));
        self.cache.wait_for_work();
    }

    pub(super) async fn chunk_list(&self, wanted: &ImageSpec) -> Option<Vec<u8>> {
        let key = self.run(|library, _| library.chunk_list(wanted))?;
        self.cache.chunk_list(key).await
    }

    pub(super) async fn fetch_file(
        &self,
        url: &str,
        format: ImageFormat,
    ) -> Result<FetchedFile, String> {
        let (reply, answer) = oneshot::channel();
        self.shared
            .urls
            .lock()
            .unwrap()
            .insert(url.to_owned(), reply);
        self.run(|library, now| library.fetch_url(now, url, format));
        let result = answer.await.unwrap();
        self.cache.wait_for_work();
        result
    }

    pub(super) async fn find_checksum(&self, url: &str, name: &str) -> Result<Digest, String> {
        let (reply, answer) = oneshot::channel();
        self.shared.checksums.lock().unwrap().push(reply);
        let (url, name) = (url.to_owned(), name.to_owned());
        self.cache
            .execute(ImageWorkOrder::FindChecksum { url, name });
        answer.await.unwrap().result
    }

    pub(super) async fn upload<B>(
        &self,
        wanted: &ImageSpec,
        range: ImageUploadRange,
        body: &mut B,
    ) -> Result<u64, ImageUploadError>
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Unpin,
    {
        self.cache.upload(wanted, range, body).await
    }
}
