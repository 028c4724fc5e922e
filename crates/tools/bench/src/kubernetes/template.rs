//! Copies of an object that the API server itself has stored, with other texts of the same length. So they have the
//! form in which the server stores objects, such as protobuf, without a request for each.

use crate::Failed;

/// A stored object, and the places in which its copies differ.
pub(super) struct Template {
    bytes: Vec<u8>,
    /// The position of each text, and its index.
    places: Vec<(usize, usize)>,
    lengths: Vec<usize>,
}

impl Template {
    /// Finds every occurrence of the UID and of `texts` in `bytes`.
    pub(super) fn new(bytes: Vec<u8>, uid: &str, texts: &[String]) -> Result<Self, Failed> {
        let texts: Vec<&str> = std::iter::once(uid).chain(texts.iter().map(String::as_str)).collect();
        let mut places = Vec::new();
        for (which, text) in texts.iter().enumerate() {
            let before = places.len();
            let windows = bytes.windows(text.len().max(1)).enumerate();
            places.extend(windows.filter(|(_, w)| *w == text.as_bytes()).map(|(at, _)| (at, which)));
            if places.len() == before {
                return Err(format!("the stored object does not hold {text:?}").into());
            }
        }
        let lengths = texts.iter().map(|text| text.len()).collect();
        Ok(Self { bytes, places, lengths })
    }

    /// A copy with another UID and other texts.
    pub(super) fn fill(&self, uid: &str, texts: &[String]) -> Vec<u8> {
        let texts: Vec<&str> = std::iter::once(uid).chain(texts.iter().map(String::as_str)).collect();
        let lengths = texts.iter().map(|text| text.len());
        assert!(lengths.eq(self.lengths.iter().copied()), "texts of other lengths: {texts:?}");
        let mut bytes = self.bytes.clone();
        for (at, which) in &self.places {
            let text = texts[*which].as_bytes();
            bytes[*at..*at + text.len()].copy_from_slice(text);
        }
        bytes
    }

    /// The length of each copy.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}
