//! Writes journals: the lines, in order, by a thread of their own.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calipam_model::parallel::lock;
use tokio::sync::oneshot;

use super::disk::{Disk, JournalFile};
use super::entry::{Entry, Header, Intent, LockMark, Outcome};
use super::error::JournalError;
use super::frames::FrameWriter;
use super::line::{LENGTH as SUM, LONGEST, Sum};

/// The largest number of lines that are written together.
const MOST_TOGETHER: usize = 1024;
/// The longest time that a line waits so that other lines can be written with it. One frame with many lines is smaller
/// than many frames, and needs only one `fsync`. The wait does not slow down many concurrent writes.
const GATHERING: Duration = Duration::from_millis(20);
/// The longest wait for one more line before those already waiting are written.
const NEXT_LINE: Duration = Duration::from_millis(4);
/// The approximate length of a line that contains no values.
const SHORT: usize = 256;

/// A journal that is being written. Its thread writes the lines in order and makes waiting lines durable together, so
/// that concurrent writes share one `fsync`. After the first failure, nothing more is written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    lines: LineWriter,
    next_intent: AtomicU64,
    /// The number of intents that are on disk.
    durable: AtomicU64,
    concluded: AtomicU64,
}

#[derive(Debug)]
enum LineWriter {
    Thread(Option<(Sender<Line>, JoinHandle<()>)>),
    /// The given disk writes each line immediately.
    OnDisk(Arc<dyn Disk>, Mutex<OpenFile>),
}

/// The open file.
struct OpenFile {
    file: JournalFile,
    sum: Sum,
    frames: FrameWriter,
    /// The failure after which nothing more is written.
    failure: Option<Arc<io::Error>>,
}

/// The channel that reports that a line is durable, or why it is not.
type Durable = oneshot::Sender<Result<(), Arc<io::Error>>>;

struct Line {
    text: Vec<u8>,
    /// `None` if no caller waits for the line.
    done: Option<Durable>,
}

impl Journal {
    /// Creates the file and its folder, and makes the header durable. Fails if the file exists: a journal is never
    /// overwritten. Only the user can read the file, except on Windows.
    pub fn create(path: &Path, header: &Header) -> Result<Self, JournalError> {
        let file = OpenFile::create(path, header)?;
        let (queue, lines) = channel();
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || file.write_lines(&lines));
        let thread = thread.map_err(|error| JournalError::write(path, &error))?;
        Ok(Self::new(path, LineWriter::Thread(Some((queue, thread)))))
    }

    /// Creates a journal that the given disk writes.
    pub fn create_on(disk: &Arc<dyn Disk>, path: &Path, header: &Header) -> Result<Self, JournalError> {
        let file = OpenFile::create(path, header)?;
        Ok(Self::new(
            path,
            LineWriter::OnDisk(Arc::clone(disk), Mutex::new(file)),
        ))
    }

    /// Begins with the first intent of a journal.
    fn new(path: &Path, lines: LineWriter) -> Self {
        Self {
            path: path.to_owned(),
            lines,
            next_intent: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            concluded: AtomicU64::new(0),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts the intents without an outcome, which may have been written. The batch of an intent that did not reach the
    /// disk was not sent.
    pub fn open_intents(&self) -> u64 {
        // An intent that ends between the two loads must not make the difference negative.
        let concluded = self.concluded.load(Ordering::Acquire);
        self.durable.load(Ordering::Relaxed).saturating_sub(concluded)
    }

    /// Numbers an intent, writes it, and waits until it is on disk. Its batch must not be written to the datastore
    /// before that.
    ///
    /// # Errors
    /// If the intent could not be made durable. In that case, its batch must not be written.
    pub async fn intend(&self, intent: &mut Intent) -> Result<(), JournalError> {
        /// [`Entry::Intent`], borrowed.
        #[derive(serde::Serialize)]
        struct Line<'a> {
            intent: &'a Intent,
        }
        intent.id = self.next_intent.fetch_add(1, Ordering::Relaxed);
        let length = intent.length_hint();
        self.append(&Line { intent }, length).await?;
        self.durable.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the outcome of an intent, without waiting until it is on disk. A lost outcome can be found by reading the
    /// objects. A write error is reported with the next intent, or at the end.
    pub fn conclude(&self, outcome: Outcome) -> Result<(), JournalError> {
        self.send(&Entry::Outcome(outcome), SHORT, None)?;
        self.concluded.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Writes a mark about the datastore lock.
    pub async fn mark_lock(&self, mark: LockMark) -> Result<(), JournalError> {
        self.append(&Entry::Lock(mark), SHORT).await
    }

    /// Writes that a signal stopped the run, without waiting until it is on disk. [`Self::end`] waits for it.
    pub fn mark_interrupted(&self) -> Result<(), JournalError> {
        self.send(&Entry::Interrupted {}, SHORT, None)
    }

    /// Writes the end of the run. Only lock marks may be written after it.
    pub async fn end(&self) -> Result<(), JournalError> {
        self.append(&Entry::End {}, SHORT).await
    }

    /// Writes a line of about `length` bytes, and waits until it is on disk.
    async fn append(&self, entry: &impl serde::Serialize, length: usize) -> Result<(), JournalError> {
        match &self.lines {
            LineWriter::Thread(_) => {
                let (done, durable) = oneshot::channel();
                self.send(entry, length, Some(done))?;
                let written = durable.await.map_err(|_| self.thread_ended())?;
                written.map_err(|error| self.error(&error))
            }
            LineWriter::OnDisk(disk, file) => {
                let text = encode(entry, length).map_err(|error| self.error(&error))?;
                disk.turn().await;
                let written = lock(file).write_on(&**disk, text);
                written.map_err(|error| self.error(&error))
            }
        }
    }

    /// Passes a line of about `length` bytes to the writer. The result is sent to `done`.
    fn send(
        &self,
        entry: &impl serde::Serialize,
        length: usize,
        done: Option<Durable>,
    ) -> Result<(), JournalError> {
        let text = encode(entry, length).map_err(|error| self.error(&error))?;
        let line = Line { text, done };
        match &self.lines {
            LineWriter::Thread(Some((queue, _))) => queue.send(line).map_err(|_| self.thread_ended()),
            LineWriter::Thread(None) => Err(self.thread_ended()),
            LineWriter::OnDisk(_, file) => {
                lock(file).write(&[line]);
                Ok(())
            }
        }
    }

    fn error(&self, error: &io::Error) -> JournalError {
        JournalError::write(&self.path, error)
    }

    fn thread_ended(&self) -> JournalError {
        self.error(&io::Error::other("the thread that writes it has ended"))
    }

    /// Ends the thread that writes lines, after its last line.
    fn close(&mut self) {
        if let LineWriter::Thread(thread) = &mut self.lines
            && let Some((queue, thread)) = thread.take()
        {
            drop(queue);
            // A thread that panicked has dropped its lines, so no caller waits for them.
            thread.join().ok();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}

/// Encodes a line of about `length` bytes. The capacity is reserved, because a growing buffer would be copied
/// repeatedly.
fn encode(entry: &impl serde::Serialize, length: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(length);
    serde_json::to_writer(&mut line, entry)?;
    if line.len() + SUM > LONGEST {
        return Err(io::Error::other(
            "the objects of one write are too large for a line",
        ));
    }
    Ok(line)
}

/// Waits a short time for lines that can be written together with the first.
fn receive_more(first: Line, lines: &Receiver<Line>) -> Vec<Line> {
    let mut together = vec![first];
    let deadline = Instant::now() + GATHERING;
    while together.len() < MOST_TOGETHER {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let Ok(line) = lines.recv_timeout(remaining.min(NEXT_LINE)) else {
            break;
        };
        together.push(line);
    }
    together
}

impl OpenFile {
    /// Creates the file, and makes the header durable.
    fn create(path: &Path, header: &Header) -> Result<Self, JournalError> {
        let failed = |error: io::Error| JournalError::write(path, &error);
        let mut sum = Sum::default();
        let mut frames = FrameWriter::new().map_err(failed)?;
        let line = encode(&Entry::Header(header.clone()), SHORT).map_err(failed)?;
        let first = frames
            .frames([&line], |line, text| sum.seal(line, text))
            .map_err(failed)?;
        let file = JournalFile::create(path, first).map_err(failed)?;
        Ok(Self {
            file,
            sum,
            frames,
            failure: None,
        })
    }

    /// Writes all lines that are sent, until the journal is closed.
    fn write_lines(mut self, lines: &Receiver<Line>) {
        while let Ok(first) = lines.recv() {
            let together = receive_more(first, lines);
            self.write(&together);
            for done in together.into_iter().filter_map(|line| line.done) {
                // If the run was interrupted, no caller waits for the line.
                done.send(self.result()).ok();
            }
        }
    }

    /// Returns the failure after which nothing more is written.
    fn result(&self) -> Result<(), Arc<io::Error>> {
        match &self.failure {
            Some(error) => Err(Arc::clone(error)),
            None => Ok(()),
        }
    }

    /// Writes lines, unless an earlier write failed. They are durable if a caller waits for one of them.
    fn write(&mut self, lines: &[Line]) {
        let is_awaited = lines.iter().any(|line| line.done.is_some());
        self.write_by(lines, |file, bytes| {
            file.append(bytes)?;
            if is_awaited { file.make_durable() } else { Ok(()) }
        });
    }

    /// Writes the text of a line on the given disk, unless an earlier write failed.
    fn write_on(&mut self, disk: &dyn Disk, text: Vec<u8>) -> Result<(), Arc<io::Error>> {
        let line = Line { text, done: None };
        self.write_by(&[line], |file, bytes| disk.append(file, bytes));
        self.result()
    }

    /// Passes lines to `append`, unless an earlier write failed.
    fn write_by(&mut self, lines: &[Line], append: impl FnOnce(&mut JournalFile, &[u8]) -> io::Result<()>) {
        if self.failure.is_some() {
            return;
        }
        let Self {
            file, sum, frames, ..
        } = self;
        let bytes = frames.frames(lines, |line, text| sum.seal(&line.text, text));
        let written = bytes.and_then(|bytes| append(file, bytes));
        self.failure = written.err().map(Arc::new);
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}
