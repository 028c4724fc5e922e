//! What the commands that write have in common: planning by what was found, consent, and the run itself.

mod consent;
mod journal;
mod planning;
mod run;

pub use self::consent::{agree, will_ask};
pub use self::journal::restore_left_lock;
pub use self::planning::{Looks, plan};
pub use self::run::{Done, brake, carry_out, carry_out_undo, outcome};
