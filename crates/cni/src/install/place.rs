//! The files in the folder of CNI plugins, and the steps to replace Calico's plugin with this program and restore it.
//!
//! `calico-ipam` changes by one rename at a time, so it is a complete program at every moment, Calico's or this one. A
//! killed run can leave files whose names begin with a dot; the next run finishes its work.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_files::regular;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::problem::{Problem, Result, cannot};

/// The name of the plugin that runtimes call.
const PLUGIN: &str = "calico-ipam";
/// The backup of Calico's plugin.
const ORIGINAL: &str = "calico-ipam.calico";
/// This program, while it is being copied.
const PART: &str = ".calico-ipam.part";
/// The complete copy of this program. After the exchange, the former plugin has this name.
const NEXT: &str = ".calico-ipam.next";

/// The mode of a plugin: everyone can read and execute it.
const EXECUTABLE: u32 = 0o755;
/// The bits of a file's mode that let its owner, its group or others execute it.
const EXECUTE_BITS: u32 = 0o111;
/// The number of bytes that are read at once to compare two files.
const PIECE: usize = 64 << 10;
/// The number of bytes that are read at once to search for the mark.
const SEARCHED_PIECE: usize = 1 << 20;
/// The beginning of an ELF file.
const ELF: &[u8] = b"\x7fELF";
/// The beginning of a 64-bit ELF file.
const ELF_64: &[u8] = b"\x7fELF\x02";
/// The length of the header of a 64-bit ELF file.
const ELF_HEADER: usize = 64;

/// The time after its last change during which an incomplete file counts as being written.
const WRITING: Duration = Duration::from_mins(1);

/// Bytes that every version of this program contains, and no other program.
#[used]
static MARK: [u8; 64] = *b"calipam: this program takes the place of calico-ipam, of Calico ";

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Missing,
    This,
    /// Another version of this program.
    Ours,
    /// Calico's, or any other program that is not ours.
    Calicos,
    /// Not ours, and still being written: it cannot be executed, or its end is missing.
    Unfinished,
    /// Not ours, incomplete, and unchanged for a minute.
    Broken,
}

/// The result of [`Place::install`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// This program was already in place.
    Already,
    /// This program replaced another version of itself.
    Updated,
    /// This program is in place now, and Calico's is kept as a backup.
    Replaced,
    /// Both the plugin and the backup are missing: Calico has not been installed.
    NoCalico,
    /// Another process is writing the plugin, or the plugin is broken and there is no backup.
    Unfinished,
}

/// A folder of CNI plugins.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    /// The file of this program.
    program: PathBuf,
}

impl Place {
    pub fn new(folder: &Path, program: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            program: program.to_owned(),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kind of the program that is now the plugin.
    pub fn plugin(&self) -> Result<Program> {
        self.identify(PLUGIN)
    }

    /// Takes the lock for changing the folder, or fails if another process has it. The lock is held until the file is
    /// dropped or the process ends.
    pub fn lock(&self) -> Result<File> {
        let folder = File::open(&self.folder).map_err(cannot("open", &self.folder))?;
        match folder.try_lock() {
            Ok(()) => Ok(folder),
            // The lock of a process ends with it, so the other installer is running now.
            Err(fs::TryLockError::WouldBlock) => {
                let message = format!(
                    "another installer of this program is running in {}",
                    self.folder.display()
                );
                Err(Problem::new(message).hint("stop it first: it restores Calico's plugin when it ends"))
            }
            Err(fs::TryLockError::Error(error)) => Err(cannot("lock", &self.folder)(error)),
        }
    }

    /// Replaces the plugin with this program, unless there is a reason to keep it. Calico's plugin becomes the backup,
    /// and replaces an earlier backup.
    pub fn install(&self) -> Result<Installed> {
        self.finish()?;
        let plugin = self.plugin()?;
        if let Some(reason) = self.reason_to_keep(plugin)? {
            return Ok(reason);
        }

        let placed = self.put_in_place(plugin);
        // Nothing that this run has begun may be left behind, even after an error.
        let finished = self.finish();
        placed?;
        finished?;
        Ok(in_place_of(plugin))
    }

    /// Returns the result that [`Self::install`] would have. Changes nothing, not even what a killed run has left.
    pub fn would_install(&self) -> Result<Installed> {
        let plugin = self.plugin()?;
        let kept = self.reason_to_keep(plugin)?;
        Ok(kept.unwrap_or_else(|| in_place_of(plugin)))
    }

    /// Returns why an installation leaves the plugin as it is; `None` if it replaces the plugin.
    fn reason_to_keep(&self, plugin: Program) -> Result<Option<Installed>> {
        // Without a backup, an uninstallation could not restore what is missing or broken.
        let without_backup = match plugin {
            Program::This => return Ok(Some(Installed::Already)),
            Program::Unfinished => return Ok(Some(Installed::Unfinished)),
            Program::Ours | Program::Calicos => return Ok(None),
            Program::Missing => Installed::NoCalico,
            Program::Broken => Installed::Unfinished,
        };
        Ok(if self.has_original()? {
            None
        } else {
            Some(without_backup)
        })
    }

    /// Copies this program into the folder, and gives the copy the plugin's name.
    fn put_in_place(&self, plugin: Program) -> Result<()> {
        self.copy()?;
        if plugin == Program::Missing {
            // A plugin that has appeared in the meantime is not overwritten.
            self.rename(NEXT, PLUGIN, RenameFlags::NOREPLACE)
        } else {
            // If the plugin has changed, the exchange keeps the changed one, which becomes the backup.
            self.rename(NEXT, PLUGIN, RenameFlags::EXCHANGE)
        }
    }

    /// Restores Calico's plugin from the backup. Returns false if there is nothing to do: Calico has installed its
    /// plugin in the meantime, or the folder has neither a plugin nor a backup.
    ///
    /// # Errors
    /// If a plugin is being written, or if this program or a broken one is in place and there is no backup.
    pub fn restore(&self) -> Result<bool> {
        self.finish()?;
        let backup = self.identify(ORIGINAL)?;
        let has_backup = backup == Program::Calicos;
        let plugin = self.plugin()?;
        if plugin == Program::Unfinished {
            return Err(self.being_written());
        }

        if plugin == Program::Calicos {
            // A killed run has restored the plugin by an exchange, and only left this program under the backup's name.
            let is_exchanged = matches!(backup, Program::This | Program::Ours);
            if is_exchanged {
                self.remove(ORIGINAL)?;
            }
            return Ok(is_exchanged);
        }

        if plugin == Program::Missing {
            if has_backup {
                // A plugin that has appeared in the meantime is not overwritten.
                self.rename(ORIGINAL, PLUGIN, RenameFlags::NOREPLACE)?;
            }
            return Ok(has_backup);
        }

        // This program, another version of it, or a broken program is in place.
        if !has_backup {
            return Err(self.missing_backup());
        }
        self.put_original_back()?;
        Ok(true)
    }

    /// Exchanges the plugin and the backup, and removes the former plugin.
    fn put_original_back(&self) -> Result<()> {
        self.rename(ORIGINAL, PLUGIN, RenameFlags::EXCHANGE)?;
        match self.identify(ORIGINAL)? {
            Program::This | Program::Ours | Program::Broken => self.remove(ORIGINAL),
            // Calico's installer was faster, and its plugin is newer than the backup.
            _ => self.rename(ORIGINAL, PLUGIN, RenameFlags::empty()),
        }
    }

    fn being_written(&self) -> Problem {
        let plugin = self.path(PLUGIN);
        Problem::new(format!("{} is being written", plugin.display()))
            .hint("Calico's installer is running: try again in a moment")
    }

    /// The error if Calico's own plugin, which is to be put back, is missing.
    fn missing_backup(&self) -> Problem {
        let backup = self.path(ORIGINAL);
        let message = format!(
            "the backup {} is missing; {PLUGIN} is left unchanged",
            backup.display()
        );
        Problem::new(message).hint(
            "restart the node's calico-node pod, which installs Calico's plugin: \
             `kubectl -n calico-system delete pod --selector k8s-app=calico-node --field-selector \
             spec.nodeName=NODE`",
        )
    }

    fn has_original(&self) -> Result<bool> {
        Ok(self.identify(ORIGINAL)? == Program::Calicos)
    }

    /// Removes or renames what an exchange leaves under other names, whether this run or an earlier one has begun it.
    fn finish(&self) -> Result<()> {
        self.remove(PART)?;
        match self.identify(NEXT)? {
            Program::Missing => return Ok(()),
            Program::This | Program::Ours | Program::Broken => self.remove(NEXT)?,
            // The plugin was a link to the backup.
            Program::Calicos | Program::Unfinished if self.is_original(NEXT) => self.remove(NEXT)?,
            // The exchange was completed, and this is the former plugin: it becomes the backup.
            Program::Calicos | Program::Unfinished => self.rename(NEXT, ORIGINAL, RenameFlags::empty())?,
        }
        self.sync()
    }

    /// True if a name is a link to the backup.
    fn is_original(&self, name: &str) -> bool {
        let (Ok(named), Ok(original)) = (fs::metadata(self.path(name)), fs::metadata(self.path(ORIGINAL)))
        else {
            return false;
        };
        named.dev() == original.dev() && named.ino() == original.ino()
    }

    /// Copies this program into the folder. The copy is on disk before it is renamed.
    fn copy(&self) -> Result<()> {
        let part = self.path(PART);
        let mut source = File::open(&self.program).map_err(cannot("read", &self.program))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(EXECUTABLE)
            .open(&part)
            .map_err(cannot("create", &part))?;
        io::copy(&mut source, &mut file).map_err(cannot("write", &part))?;
        // Sets the mode again, since the umask can restrict it.
        file.set_permissions(Permissions::from_mode(EXECUTABLE))
            .map_err(cannot("write", &part))?;
        file.sync_all().map_err(cannot("write", &part))?;
        drop(file);
        self.rename(PART, NEXT, RenameFlags::empty())
    }

    /// Determines the kind of program in a file. Follows links, as a runtime does.
    fn identify(&self, name: &str) -> Result<Program> {
        let path = self.path(name);
        let file = match regular::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Program::Missing),
            Err(error) => return Err(cannot("read", &path)(error)),
        };
        self.kind(file).map_err(cannot("read", &path))
    }

    /// Determines the kind of program in an open file, by its content. An incomplete file counts as unfinished for a
    /// minute after its last change, and then as broken.
    fn kind(&self, mut file: File) -> io::Result<Program> {
        if is_same(&file, &File::open(&self.program)?)? {
            return Ok(Program::This);
        }
        file.rewind()?;
        if has_mark(&file)? {
            return Ok(Program::Ours);
        }
        file.rewind()?;
        if is_whole(&file)? {
            return Ok(Program::Calicos);
        }
        // The age is unknown, and the file counts as unfinished, if it was changed in the future.
        let age = file.metadata()?.modified()?.elapsed();
        if age.is_ok_and(|age| age > WRITING) {
            Ok(Program::Broken)
        } else {
            Ok(Program::Unfinished)
        }
    }

    /// Renames a file in the folder. `flags` tell whether an existing file of the new name is replaced, is exchanged
    /// with the file, or is an error.
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        let from = self.path(from);
        let to = self.path(to);
        let Err(error) = renameat_with(CWD, &from, CWD, &to, flags) else {
            return Ok(());
        };

        let problem = Problem::new(format!(
            "cannot rename {} to {}: {error}",
            from.display(),
            to.display()
        ));
        if flags == RenameFlags::EXCHANGE && matches!(error, Errno::INVAL | Errno::NOSYS) {
            let hint =
                "this file system cannot exchange two names; put the program there by hand (docs/cni.md)";
            return Err(problem.hint(hint));
        }
        Err(problem)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        regular::remove(&path).map_err(cannot("remove", &path))
    }

    /// Waits until the changes to the folder are on disk.
    fn sync(&self) -> Result<()> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(cannot("write", &self.folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The result after this program has taken the place of another one.
fn in_place_of(plugin: Program) -> Installed {
    if plugin == Program::Ours {
        Installed::Updated
    } else {
        Installed::Replaced
    }
}

/// True if two files have the same content, read from their current positions, which are at the beginning.
fn is_same(file: &File, other: &File) -> io::Result<bool> {
    if file.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let mut file = BufReader::new(file);
    let mut other = BufReader::new(other);
    let mut piece = vec![0; PIECE];
    let mut piece_of_other = Vec::new();
    loop {
        let length = file.read(&mut piece)?;
        piece_of_other.resize(length, 0);
        // A file that has become shorter in the meantime is different.
        if other.read_exact(&mut piece_of_other).is_err() || piece[..length] != piece_of_other {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

/// True if a file contains [`MARK`], and so is some version of this program.
fn has_mark(mut file: &File) -> io::Result<bool> {
    let mark = memchr::memmem::Finder::new(&MARK);
    let mut window = Vec::new();
    let mut piece = vec![0; SEARCHED_PIECE];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(false);
        }
        window.extend_from_slice(&piece[..read]);
        if mark.find(&window).is_some() {
            return Ok(true);
        }
        // The mark can be split between two pieces.
        window.drain(..window.len().saturating_sub(MARK.len()));
    }
}

/// True if a file can be a complete program: it is executable and not empty, and if it is in ELF format, it is for 64
/// bits and not truncated.
fn is_whole(mut file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let is_executable = metadata.permissions().mode() & EXECUTE_BITS != 0;
    if !is_executable || metadata.len() == 0 {
        return Ok(false);
    }
    let mut header = [0; ELF_HEADER];
    // A script can be shorter than the header of an ELF file.
    if file.read_exact(&mut header).is_err() || !header.starts_with(ELF_64) {
        return Ok(!header.starts_with(ELF));
    }

    let is_little_endian = header[5] == 1;
    let number = |offset: usize, length: usize| {
        let mut digits = header[offset..offset + length].to_vec();
        if is_little_endian {
            digits.reverse();
        }
        let mut number: u64 = 0;
        for digit in digits {
            number = (number << 8) | u64::from(digit);
        }
        number
    };
    // The table of sections is the last part of the file.
    let table_offset = number(0x28, 8);
    let entry_size = number(0x3a, 2);
    let entry_count = number(0x3c, 2);
    Ok(table_offset.saturating_add(entry_size * entry_count) <= metadata.len())
}
