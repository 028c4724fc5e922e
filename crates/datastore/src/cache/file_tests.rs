//! Every way in which the file of a cache can be cut, blanked or damaged.

use std::fs;
use std::path::Path;

use super::*;

/// What a cache comes to: how often it was appended to.
type State = u32;

/// What a run finds: the state, and the texts of the frames.
type Found = (State, Vec<Vec<u8>>);

/// `None` if something is damaged.
fn found(path: &Path) -> Option<Found> {
    let kept = open::<State>(path, &identity()).ok()?;
    let texts: io::Result<_> = kept.frames.iter().map(|place| place.read(&kept.file)).collect();
    Some((kept.state, texts.ok()?))
}

fn identity() -> Identity {
    Identity { cluster_id: "c".to_owned(), guid: "g".to_owned(), kind: String::new() }
}

fn change(path: &Path, text: &str) {
    let kept = open::<State>(path, &identity()).unwrap_or_else(|why| panic!("{why}"));
    append(&kept, [text].into_iter(), &(kept.state + 1)).unwrap();
}

/// A cache that was appended to twice; its length and what a run finds in it, after each time.
fn appended_to(path: &Path) -> Vec<(usize, Found)> {
    let mut writer = CacheWriter::create(path, &identity()).unwrap();
    let mut frames = Vec::new();
    Packer::new().unwrap().push(b"Eentries", &mut frames).unwrap();
    writer.push(&frames).unwrap();
    writer.finish(&0_u32).unwrap();
    let mut states = Vec::new();
    for text in ["one", "two", ""] {
        states.push((fs::read(path).unwrap().len(), found(path).unwrap()));
        if !text.is_empty() {
            change(path, text);
        }
    }
    states
}

#[test]
fn a_cache_that_is_cut_or_blanked_anywhere_comes_to_what_it_was_or_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let states = appended_to(&path);
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        let expected = states.iter().rfind(|(length, _)| *length <= cut).map(|(_, state)| state);
        let blank = [&whole[..cut], &vec![0; whole.len() - cut]].concat();
        for (is_blank, bytes) in [(false, &whole[..cut]), (true, &*blank)] {
            fs::write(&path, bytes).unwrap();
            let now = found(&path);
            assert!(now.is_none() || now.as_ref() == expected, "{cut}, blank: {is_blank}: {now:?}");
            // A run that was killed while it wrote costs its own changes alone.
            assert!(is_blank || now.as_ref() == expected, "{cut}: {now:?}");
            if let Some((state, mut texts)) = now {
                change(&path, "later");
                texts.extend([format!("S{state}").into(), b"Clater".to_vec()]);
                assert_eq!(found(&path), Some((state + 1, texts)), "{cut}, blank: {is_blank}");
            }
        }
    }
}

#[test]
fn a_cache_with_any_bit_damaged_comes_to_what_it_was_or_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let states = appended_to(&path);
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            let now = found(&path);
            let is_known = now.as_ref().is_none_or(|now| states.iter().any(|(_, state)| state == now));
            assert!(is_known, "bit {bit} of byte {place}: {now:?}");
        }
    }
}

/// A run appends what it has read, or is killed after so many bytes, while another has the cache open, which appends then.
#[test]
fn of_two_runs_at_once_one_appends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let [.., (_, (last, _))] = &*appended_to(&path) else { panic!("no state") };
    let whole = fs::read(&path).unwrap();
    let append_to = |kept: &Kept<State>, text| append(kept, [text].into_iter(), &(kept.state + 1)).unwrap();
    let opened = || open::<State>(&path, &identity()).unwrap_or_else(|why| panic!("{why}"));
    let first = opened();
    append_to(&first, "first");
    drop(first);
    let written = fs::read(&path).unwrap();
    for kept in whole.len()..=written.len() {
        fs::write(&path, &whole).unwrap();
        let second = opened();
        fs::write(&path, &written[..kept]).unwrap();
        append_to(&second, "second");
        let (state, texts) = found(&path).unwrap();
        let has = |text: &[u8]| texts.iter().any(|found| found.ends_with(text));
        let expected = match kept {
            _ if kept == whole.len() => (last + 1, false, true),
            _ if kept == written.len() => (last + 1, true, false),
            _ => (*last, false, false),
        };
        assert_eq!((state, has(b"first"), has(b"second")), expected, "{kept} bytes");
    }
}
