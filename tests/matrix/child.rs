//! Makes a call in a child that is forked off the running process, where no thread but the caller's is left.

use std::sync::RwLock;
use std::time::Duration;

use super::Cell;
use super::answer::Answer;

/// The column whose cells fork.
pub const COLUMN: &str = "child of a fork";

/// Written by a cell that forks, read by all others: a lock that another cell holds at that moment, of the system's or of the
/// simulator's, would be held in the child forever.
static CELLS: RwLock<()> = RwLock::new(());

/// Waits until `cell` may run beside those that do.
pub fn beside(cell: &Cell) -> impl Drop + use<> {
    struct Beside {
        _one: Option<std::sync::RwLockReadGuard<'static, ()>>,
        _alone: Option<std::sync::RwLockWriteGuard<'static, ()>>,
    }
    impl Drop for Beside {
        fn drop(&mut self) {}
    }
    match cell.column == COLUMN {
        true => Beside { _one: None, _alone: Some(CELLS.write().unwrap_or_else(std::sync::PoisonError::into_inner)) },
        false => Beside { _one: Some(CELLS.read().unwrap_or_else(std::sync::PoisonError::into_inner)), _alone: None },
    }
}

/// What `call` answers in a child, which ends right after it.
///
/// # Panics
/// When the system makes no child.
#[cfg(target_os = "linux")]
pub fn run(mut call: impl FnMut() -> Answer) -> Answer {
    // A thread of the simulator's may have had a lock at that moment, which the child then waits for: it is asked again.
    let patience = crate::rig::deadline() / 20;
    let mut answer = once(&mut call, patience);
    for _ in 0..2 {
        if matches!(answer, Answer::Hung(_)) {
            answer = once(&mut call, patience);
        }
    }
    answer
}

/// As [`run`], and asks no child again that is silent for so long.
///
/// # Panics
/// As there.
#[cfg(target_os = "linux")]
pub fn once(call: &mut impl FnMut() -> Answer, patience: Duration) -> Answer {
    let mut ends = [0; 2];
    // SAFETY: O1. There is room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0, "a pipe is made");
    let [from, to] = ends;
    // SAFETY: R5. The child has this thread alone, makes its call, and ends without going back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        tell(to, &answer.unwrap_or_else(|_panic| Answer::Wrong("the child panicked".to_owned())));
    }
    assert!(child > 0, "a child is made");
    // SAFETY: O1. Opened above, and the child's from now on.
    unsafe { libc::close(to) };
    let answer = hear(from, patience);
    // SAFETY: O1. The child is this function's own; it has nothing left to do.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: O1. As above; nobody wants to know how it ended.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    // SAFETY: O1. Opened above, and used by nobody any more.
    unsafe { libc::close(from) };
    answer
}

/// Nothing is forked elsewhere.
#[cfg(not(target_os = "linux"))]
pub fn run(mut call: impl FnMut() -> Answer) -> Answer {
    call()
}

/// The child's end: its answer in a line.
#[cfg(target_os = "linux")]
fn tell(to: i32, answer: &Answer) -> ! {
    let line = match answer {
        Answer::Works => "works\n".to_owned(),
        Answer::Refused(word) => format!("refused {word}\n"),
        Answer::Hung(what) | Answer::Wrong(what) => format!("wrong {}\n", what.replace('\n', " ")),
    };
    // SAFETY: O1. The bytes are there.
    unsafe { libc::write(to, line.as_ptr().cast(), line.len()) };
    // SAFETY: R5. Nothing of the parent's is run or dropped here.
    unsafe { libc::_exit(0) }
}

#[cfg(target_os = "linux")]
fn hear(from: i32, patience: Duration) -> Answer {
    let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    let (mut line, mut byte) = (Vec::new(), 0_u8);
    loop {
        let mut wait = libc::pollfd { fd: from, events: libc::POLLIN, revents: 0 };
        // SAFETY: O1. One descriptor to look at.
        if unsafe { libc::poll(&raw mut wait, 1, patience) } <= 0 {
            return Answer::Hung("the child does not answer".to_owned());
        }
        // SAFETY: O1. There is room for a byte.
        if unsafe { libc::read(from, (&raw mut byte).cast(), 1) } <= 0 {
            return Answer::Wrong("the child ended without an answer".to_owned());
        }
        if byte == b'\n' {
            break;
        }
        line.push(byte);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    match line.split_once(' ') {
        None => Answer::Works,
        Some(("refused", word)) => Answer::Refused(word.to_owned()),
        Some((_, what)) => Answer::Wrong(what.to_owned()),
    }
}
