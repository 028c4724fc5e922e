//! The package of Fedora, RHEL, SUSE and their descendants.

use rpm::{BuildConfig, CompressionType, FileMode, FileOptions, PackageBuilder};

use crate::files::{Content, Machine, installed};
use crate::package::Package;
use crate::{REPOSITORY, Result, VERSION, maintainer};

pub(crate) fn build(packaged: &Package, machine: &Machine) -> Result<Vec<u8>> {
    let Package {
        name,
        summary,
        description,
        entries,
    } = packaged;
    let mut package = PackageBuilder::new(name, VERSION, "Apache-2.0", machine.rpm, summary);
    // The package contains no build time, so that the same input gives the same package.
    package.using_config(
        BuildConfig::v4()
            .compression(CompressionType::Gzip)
            .source_date(0),
    );
    package
        .release("1")
        .description(*description)
        .packager(maintainer());
    if !REPOSITORY.is_empty() {
        package.url(REPOSITORY);
    }
    for entry in entries {
        let place = format!("/{}", entry.place);
        match &entry.content {
            Content::File(content, mode) => {
                let mode = FileMode::regular(u16::try_from(*mode)?);
                let options = FileOptions::new(place).mode(mode);
                let options = if entry.place.ends_with("/copyright") {
                    options.license()
                } else {
                    options
                };
                package.with_file_contents(installed(entry, content)?, options)?;
            }
            Content::Link(target) => {
                package.with_symlink(FileOptions::symlink(place, *target))?;
            }
        }
    }
    let mut bytes = Vec::new();
    package.build()?.write(&mut bytes)?;
    Ok(bytes)
}
