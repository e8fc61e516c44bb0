//! The language, word by word: what a file comes to, and what it is told where it is mistaken.

use std::sync::Arc;

use super::{Explored, Plan, Verdict, explore};
use crate::profile::Profile;
use crate::scenario::parse;

fn played_on(text: &str, profile: &Profile) -> Explored {
    let scenario = Arc::new(parse(text).unwrap_or_else(|error| panic!("{text}: {error}")));
    let (exhaustive, only, traced, steps) = (false, None, false, None);
    let plan = Plan { schedules: 100, seed: 0, exhaustive, only, traced, steps, progress: Arc::default() };
    explore(&scenario, profile, &plan)
}

/// The verdict and the message of what failed, if anything did.
fn failure(text: &str) -> Option<(Verdict, String)> {
    let explored = played_on(text, &Profile::cuda_13());
    let failure = explored.failed.and_then(|(played, _)| played.failure);
    failure.map(|failure| (failure.verdict, failure.message))
}

fn passes(text: &str) {
    assert_eq!(failure(text), None, "{text}");
}

fn says(text: &str, verdict: Verdict, words: &str) {
    match failure(text) {
        Some((found, message)) => {
            assert_eq!(found, verdict, "{text}: {message}");
            assert!(message.contains(words), "{text}: {message:?} does not say {words:?}");
        }
        None => panic!("{text}: passes"),
    }
}

#[test]
fn two_threads_await_work_of_their_own() {
    passes(
        "stream A\nbuffer x 4 on A\ncompletion of A as f\ncompletion of A as k\nthread W { await f }\nthread V { await k }",
    );
    passes(
        "stream A, B\nbuffer x 4 on A\nbuffer y 4 on B\nwrite x = 3 on A\nwrite y = 4 on B\nfetch x on A as f\n\
         fetch y on B as g\nthread W { await f == 3 }\nthread V { await g == 4 }",
    );
}

#[test]
fn a_future_that_nobody_can_wake_is_a_deadlock() {
    says("stream A\nhold A\nbuffer x 4 on A\ncompletion of A as f\nawait f", Verdict::Violation, "waits for a future");
}

#[test]
fn a_future_can_be_polled_once() {
    passes("stream A\nhold A\nbuffer x 4 on A\ncompletion of A as f\npoll f pending\nrelease A\nawait f");
    passes("stream A\nbuffer x 4 on A\nsync A\ncompletion of A as f\npoll f ready");
    says("stream A\nsync A\ncompletion of A as f\npoll f pending", Verdict::Expectation, "`f` is ready");
    says(
        "stream A\nsync A\ncompletion of A as f\npoll f ready\nawait f",
        Verdict::Error,
        "`f` stands for nothing here: line 4 let go of it",
    );
}

#[test]
fn a_name_that_may_be_gone_is_asked_for() {
    passes("stream A\nfail malloc_async with 2\nbuffer x 4 on A may fail out-of-memory\nif x { read x on A }");
    passes("stream A\nbuffer x 4 on A\nif x { drop x }\nif x { panic }");
}

#[test]
fn two_threads_let_go_of_one_buffer() {
    passes(
        "stream A\nbuffer x 4 on A\nclone x as y\nwrite x = 1 on A\nthread T { free x may fail any }\nthread U { drop y }",
    );
}

#[test]
fn a_lock_of_the_program_is_held_over_driver_calls() {
    let text = "stream A, B\nbuffer x 4 on A\nthread T { lock m { write x = 1 on A } }\nthread U { lock m { write x = 2 on B } }";
    passes(text);
    let crossed = "thread T { lock m { lock n { poll } } }\nthread U { lock n { lock m { poll } } }";
    says(crossed, Verdict::Violation, "lock");
}

#[test]
fn other_code_destroys_its_stream() {
    passes("stream A adopted\nbuffer x 4 on A\nsync A\ndrop x\npoll\nsync A\ndrop A\npoll\ndestroy A raw");
    says("stream A\ndestroy A raw", Verdict::Error, "`A` is no adopted stream");
}

#[test]
fn what_a_capture_cannot_take_is_refused_with_the_reason() {
    passes("stream A\nbuffer x 4 on A\ncapture g as C { record e on C fails inside-capture }");
    says(
        "stream A\nbuffer x 4 on A\ncapture g as C { write x on C }\nwrite x on C",
        Verdict::Error,
        "`C` stands for nothing here: it is a queue of the capture in line 3",
    );
    says("stream A\ncapture g as C { sync C }", Verdict::Error, "only such as can be recorded");
}

#[test]
fn a_name_that_stands_for_nothing_says_why() {
    says(
        "stream A\nbuffer x 4 on A\ndrop x\nread x on A",
        Verdict::Error,
        "`x` stands for nothing here: line 3 let go of it",
    );
    says("stream A\nread bufer on A\nbuffer buffer 4 on A", Verdict::Error, "did you mean `buffer`?");
    says(
        "stream A\nread x on A\nbuffer x 4 on A",
        Verdict::Error,
        "line 3 makes it, and was not played before this one",
    );
    says(
        "stream A\nhost h 4\nsync h",
        Verdict::Error,
        "`h` is plain host memory, where a stream, a buffer, a wrap or an event is needed",
    );
}

/// A file with mistakes of every kind: each is told with its line and the nearest right word.
#[test]
fn mistakes_are_told_with_the_word_that_was_meant() {
    let mistakes = [
        ("strem A", "line 1, column 1", "`stream`"),
        ("stream A\nbufer x 4 on A", "line 2, column 1", "`buffer`"),
        ("keeps O1\nprofile hip-7", "line 2, column 9", "`hip-7.0`"),
        ("caught by o1_no_egde as O1", "line 1, column 11", "`o1_no_edge`"),
        ("stream A fails strem-limit", "line 1, column 16", "`stream-limit`"),
        ("stream A may fail out-of-memroy", "line 1, column 19", "`out-of-memory`"),
        ("fail host_registr with 712", "line 1, column 6", "`host_register`"),
        ("stream A\nexpect stream.made == 1", "line 2, column 8", "`streams.made`"),
        ("stream A priority nromal", "line 1, column 19", "`normal`"),
        ("foreign begin K globl", "line 1, column 17", "`global`"),
        ("lose devise", "line 1, column 6", "`device`"),
        ("fail malloc with MemoryAlocation", "line 1, column 18", "`MemoryAllocation`"),
    ];
    for (text, place, word) in mistakes {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.starts_with(place), "{text}: {error}");
        assert!(error.ends_with(&format!("; did you mean {word}?")), "{text}: {error}");
    }
}

/// One file with ten mistakes. Each is told with its line and the word that was meant; once that is put in, the next is.
#[test]
fn ten_mistakes_of_one_file_are_told_one_after_the_other() {
    let mut text = "keeps O11\nprofile hip-7\nfail maloc with 2\nstream A priority hihg\nbuffer x 4 om A\nhost h 4 = 7\n\
                    wrpa w = h\nwirte x = 1 on A\nreed x on A\nthread T {\n    syncc A\n}\nfinally {\n    expect edges.neddless == 0\n}"
        .to_owned();
    let mistakes = [
        (1, "O11", "O1"),
        (2, "hip-7", "hip-7.0"),
        (3, "maloc", "malloc"),
        (4, "hihg", "high"),
        (5, " om ", " on "),
        (7, "wrpa", "wrap"),
        (8, "wirte", "write"),
        (9, "reed", "read"),
        (11, "syncc", "sync"),
        (14, "neddless", "needless"),
    ];
    for (line, wrong, right) in mistakes {
        let error = parse(&text).expect_err("a mistake is left").to_string();
        assert!(error.starts_with(&format!("line {line}, ")), "{wrong}: {error}");
        assert!(error.contains(right.trim()), "{wrong}: {error}");
        text = text.replacen(wrong, right, 1);
    }
    parse(&text).expect("all are mended");
}

/// In some order the worker has left a host function before the end, and that one can go wrong.
#[test]
fn the_worker_leaves_host_functions_that_can_go_wrong() {
    let text = "stream A\nhost h 4\nwrap w = h\nhold A\nread w on A\nskip function 1\ndrop w\nthread T { signal s }\n\
                thread U { wait s }\nfinally { expect calls launch_host_function == 0 }";
    says(text, Verdict::Expectation, "launch_host_function is 1");
    passes(&text.replace("expect calls launch_host_function == 0", "release A\nsync A"));
}
