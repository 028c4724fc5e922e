//! Running the program on a terminal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A terminal, seen from outside.
#[derive(Debug)]
pub struct Terminal {
    outside: OwnedFd,
    inside: File,
}

/// What a terminal showed, and with which code the program on it ended.
#[derive(Debug)]
pub struct Shown {
    pub text: String,
    pub code: Option<i32>,
}

impl Terminal {
    /// A terminal of so many columns.
    pub fn new(columns: u16) -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&outside).and_then(|()| unlockpt(&outside)).expect("a terminal of one's own");
        let name = ptsname(&outside, Vec::new()).expect("the terminal has a name");
        let name = name.to_str().expect("its name is text").to_owned();
        let inside = OpenOptions::new().read(true).write(true).open(name).expect("the terminal opens");
        let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&inside, size).expect("the terminal has a size");
        Self { outside, inside }
    }

    /// The inner side, for an output of a program.
    pub fn side(&self) -> Stdio {
        self.inside.try_clone().expect("the terminal can be shared").into()
    }

    /// Runs a program with stdout and stderr on the terminal.
    pub fn run(self, command: &mut Command) -> Shown {
        command.stdin(Stdio::null()).stdout(self.side()).stderr(self.side());
        let child = command.spawn().expect("the program starts");
        // The command holds the inner side, too: reading would not end before it is closed.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.watch(child)
    }

    /// Runs a program that reads from the terminal, too; as soon as it has shown `prompt`, `then` happens: it is given
    /// the outer side, for what is typed, and the program.
    pub fn converse(
        self,
        command: &mut Command,
        prompt: &str,
        then: impl FnOnce(&mut File, &Child),
    ) -> Shown {
        command.stdin(self.side()).stdout(self.side()).stderr(self.side());
        let child = command.spawn().expect("the program starts");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut outside = File::from(self.outside.try_clone().expect("the terminal can be shared"));
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&bytes).contains(prompt) {
            let length = outside.read(&mut part).expect("the program shows something");
            bytes.extend_from_slice(&part[..length]);
        }
        then(&mut outside, &child);
        self.watch_on(child, bytes)
    }

    /// Everything that a program shows until it ends.
    pub fn watch(self, child: Child) -> Shown {
        self.watch_on(child, Vec::new())
    }

    fn watch_on(self, mut child: Child, mut bytes: Vec<u8>) -> Shown {
        drop(self.inside);
        // The read ends with an error when no process is left on the inner side.
        let _ = File::from(self.outside).read_to_end(&mut bytes);
        let status = child.wait().expect("the program ends");
        Shown { text: String::from_utf8(bytes).expect("output is UTF-8"), code: status.code() }
    }
}
