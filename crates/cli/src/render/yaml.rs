//! YAML that means the same in YAML 1.1 and 1.2. Text that either version would read as a number, time or boolean is
//! quoted.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_saphyr::SerializerOptions;
use serde_saphyr::ser::Error;

use super::lines::Lines;

/// Writes a document as YAML, with each string on one line.
pub(super) fn write(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut options = SerializerOptions::default();
    // Every string stays on one line. Therefore grep finds it, and libyaml, which rejects block scalars with a tab, can
    // read it.
    options.prefer_block_scalars = false;

    let mut out = BufWriter::new(Lines::yaml(out));
    match serde_saphyr::to_io_writer_with_options(&mut out, document, options) {
        Ok(()) => out.flush(),
        Err(Error::IO { error }) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
