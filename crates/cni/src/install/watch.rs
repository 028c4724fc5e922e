//! Changes to a folder, as reported by the kernel (inotify).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout, timeout_at};

/// The time without changes after which files in the folder count as complete.
const QUIET: Duration = Duration::from_secs(1);
/// The longest wait for a series of changes to end.
const LONGEST: Duration = Duration::from_secs(5);

/// The changes to a folder since the last wait.
pub(super) struct Changes {
    changed: Receiver<()>,
}

impl Changes {
    /// Starts to watch a folder for changes of its files, on a thread of its own.
    pub(super) fn watch(folder: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC)?;
        let wanted = WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(&events, folder, wanted)?;
        let (sender, changed) = mpsc::channel(1);
        // The thread waits in the kernel until the process ends.
        thread::Builder::new()
            .name("inotify".into())
            .spawn(move || pass_on(&events, &sender))?;
        Ok(Self { changed })
    }

    /// Waits until the folder has changed, and then until [`QUIET`] passes without a change, since installers write a
    /// file in several steps. Constant changes are waited for at most [`LONGEST`].
    pub(super) async fn wait(&mut self) -> io::Result<()> {
        self.next().await?;
        let end = Instant::now() + LONGEST;
        let quiet = async {
            while let Ok(changed) = timeout(QUIET, self.next()).await {
                changed?;
            }
            Ok(())
        };
        match timeout_at(end, quiet).await {
            Ok(waited) => waited,
            Err(_) => Ok(()),
        }
    }

    async fn next(&mut self) -> io::Result<()> {
        self.changed
            .recv()
            .await
            .ok_or_else(|| io::Error::other("the kernel no longer reports changes"))
    }
}

/// Passes on each change as a signal without content, until the receiver is gone. The kind of change does not matter,
/// since the receiver reads the folder.
fn pass_on(events: &OwnedFd, sender: &Sender<()>) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events, &mut buffer);
    // If a signal is still waiting to be received, no other is needed.
    while reader.next().is_ok() && !sender.is_closed() {
        sender.try_send(()).ok();
    }
}
