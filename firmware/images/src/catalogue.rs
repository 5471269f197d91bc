//! The images in the box's own directory.
//!
//! The shell hashes them before it lists them here, and serves them unchanged.

use std::collections::BTreeMap;

use trivet_model::Digest;

/// Most images in the catalogue. Ours.
pub const IMAGES_MAX: usize = 1024;

/// Longest name of an image. Ours.
pub const NAME_BYTES_MAX: usize = 255;

/// One image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CatalogueImage {
    /// Bytes.
    pub size: u64,
    /// Its SHA-256 or SHA-512.
    pub digest: Digest,
}

/// Why an image is not listed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CatalogueError {
    /// The name is not valid in a URL path.
    #[error(
        "image name {name:?} must be 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes or \
         underscores and not begin with a dot; rename the file"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// There are too many.
    #[error("more than {IMAGES_MAX} images; remove some")]
    Full,
}

/// All images in the directory of this box.
#[derive(Clone, Debug, Default)]
pub struct ImageCatalogue {
    images: BTreeMap<String, CatalogueImage>,
}

impl ImageCatalogue {
    /// Lists an image, and replaces one of the same name.
    pub fn add(&mut self, name: &str, image: CatalogueImage) -> Result<(), CatalogueError> {
        if !is_name(name) {
            return Err(CatalogueError::Name {
                name: name.to_owned(),
            });
        }
        if self.images.len() >= IMAGES_MAX && !self.images.contains_key(name) {
            return Err(CatalogueError::Full);
        }
        self.images.insert(name.to_owned(), image);
        Ok(())
    }

    /// The image of this name.
    pub fn find(&self, name: &str) -> Option<&CatalogueImage> {
        self.images.get(name)
    }

    /// All images, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &CatalogueImage)> {
        self.images
            .iter()
            .map(|(name, image)| (name.as_str(), image))
    }
}

/// Whether an image may have this name: it is used in URL paths and as a file name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: CatalogueImage = CatalogueImage {
        size: 5,
        digest: Digest::Sha256([7; 32]),
    };

    #[test]
    fn finds_an_image_by_name() {
        let mut catalogue = ImageCatalogue::default();
        catalogue.add("debian.raw", IMAGE).unwrap();
        assert_eq!(
            catalogue.all().collect::<Vec<_>>(),
            [("debian.raw", &IMAGE)]
        );
        assert_eq!(catalogue.find("debian.raw"), Some(&IMAGE));
        assert_eq!(catalogue.find("other"), None);
    }

    #[test]
    fn refuses_names_that_are_not_file_names() {
        let mut catalogue = ImageCatalogue::default();
        for name in ["", ".hidden", "a/b", "a b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            let error = catalogue.add(name, IMAGE).unwrap_err();
            assert_eq!(
                error,
                CatalogueError::Name {
                    name: name.to_owned()
                }
            );
        }
    }

    #[test]
    fn refuses_more_than_its_bound_but_replaces() {
        let mut catalogue = ImageCatalogue::default();
        for number in 0..IMAGES_MAX {
            catalogue.add(&format!("image-{number}"), IMAGE).unwrap();
        }
        assert_eq!(catalogue.add("one-more", IMAGE), Err(CatalogueError::Full));
        assert_eq!(catalogue.add("image-0", IMAGE), Ok(()));
    }
}
