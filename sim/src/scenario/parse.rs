//! Text to tree. An error says where it is and what was expected there.
//!
//! Leaves are winnow's; which rule comes next is decided by the word that the line begins with, so that an error can
//! name what could have stood there instead of the last thing that was tried.

use std::fmt;

use tenure::driver::{Call, CaptureMode, Priority};
use winnow::ModalResult;
use winnow::Parser;
use winnow::ascii::{digit1, till_line_ending};
use winnow::combinator::{delimited, opt, preceded};
use winnow::error::{AddContext, ContextError, ErrMode, ParserError, StrContext, StrContextValue};
use winnow::stream::{LocatingSlice, Location, Stream};
use winnow::token::{take_till, take_while};

use super::grammar::{
    Action, CALLS, Defect, Figure, Foreign, FreedAs, Mishap, Outcome, Place, Profiles, Relation, Scenario, Step,
    StreamKind, Thread, WrapKind,
};
use super::run::DEVICE_BYTES_MAX;
use super::vocabulary::{self, ERRORS, FIGURES, RAW_CALLS};
use crate::checker::Line;
use crate::code::Code;
use crate::profile::Profile;

type Input<'i> = LocatingSlice<&'i str>;

/// Why a text is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The character in the line, from 1.
    pub column: u32,
    /// What could have stood there.
    pub expected: String,
    /// What stands there.
    pub found: String,
    /// The word of the language that comes nearest to it, if one does.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: expected {}, found {}", self.line, self.column, self.expected, self.found)?;
        match self.nearest {
            Some(word) => write!(f, "; did you mean `{word}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ParseError {}

/// Reads a scenario.
///
/// # Errors
/// Where the text leaves the language, and what was expected there.
///
/// # Examples
/// ```
/// use tenure_sim::scenario::parse;
/// let scenario = parse("stream A\nbuffer x 4 on A\nwrite x = 7 on A\nfetch x on A == 7\n")?;
/// assert_eq!(scenario.setup.len(), 4);
/// let error = parse("stream A\nbuffer x on A\n").unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 10: expected a number of elements, found `on`");
/// # Ok::<(), tenure_sim::scenario::ParseError>(())
/// ```
pub fn parse(text: &str) -> Result<Scenario, ParseError> {
    if let Some(offset) = too_deep(text) {
        return Err(located(text, offset, "at most 12 blocks inside each other".into()));
    }
    let mut scenario = file.parse(LocatingSlice::new(text)).map_err(|error| {
        let expected = error.inner().context().find_map(|context| match context {
            StrContext::Expected(StrContextValue::Description(what)) => Some((*what).to_owned()),
            _ => None,
        });
        located(text, error.offset(), expected.unwrap_or_else(|| "the end of the line".into()))
    })?;
    number_lines(text, &mut scenario);
    Ok(scenario)
}

/// Where blocks lie deeper in each other than the rules below, which call themselves, should follow.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.char_indices().find_map(|(offset, letter)| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth > DEPTH_MAX).then_some(offset)
    })
}

const DEPTH_MAX: usize = 12;

fn located(text: &str, offset: usize, expected: String) -> ParseError {
    let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let rest = &text[offset..];
    let found = match rest.chars().next() {
        None => "the end of the file".into(),
        Some('\n' | '\r') => "the end of the line".into(),
        Some(letter) if is_name(letter) => format!("`{}`", rest.split(|letter| !is_name(letter)).next().unwrap_or("")),
        Some(letter) => format!("`{}`", letter.escape_debug()),
    };
    let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let newlines = u32::try_from(before.matches('\n').count()).unwrap_or(u32::MAX);
    let nearest = vocabulary::nearest(&expected, found.trim_matches('`'));
    ParseError { line: newlines.saturating_add(1), column: count(&before[line_start..]) + 1, expected, found, nearest }
}

/// Steps are parsed with their offset where their line belongs: one walk sets it right.
fn number_lines(text: &str, scenario: &mut Scenario) {
    let starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |offset: u32| u32::try_from(starts.partition_point(|at| *at < offset as usize) + 1).unwrap_or(u32::MAX);
    let blocks = [&mut scenario.setup, &mut scenario.finally].into_iter();
    for steps in blocks.chain(scenario.threads.iter_mut().map(|thread| &mut thread.steps)) {
        number(steps, &line);
    }
}

fn number(steps: &mut [Step], line: &impl Fn(u32) -> u32) {
    for step in steps {
        step.line = line(step.line);
        match &mut step.action {
            Action::View { steps, .. }
            | Action::Capture { steps, .. }
            | Action::Scope { steps }
            | Action::Quiet { steps }
            | Action::Repeat { steps, .. }
            | Action::If { steps, .. }
            | Action::Lock { steps, .. }
            | Action::Function { steps, .. } => number(steps, line),
            _ => {}
        }
    }
}

// --- leaves

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.')
}

/// Fails here for good.
fn expected<T>(input: &mut Input<'_>, what: &'static str) -> ModalResult<T> {
    let start = input.checkpoint();
    let error = ContextError::from_input(input);
    let what = StrContext::Expected(StrContextValue::Description(what));
    Err(ErrMode::Cut(error.add_context(input, &start, what)))
}

fn gap(input: &mut Input<'_>) -> ModalResult<()> {
    take_while(0.., (' ', '\t', '\r')).void().parse_next(input)
}

fn comment(input: &mut Input<'_>) -> ModalResult<()> {
    opt(preceded('#', till_line_ending)).void().parse_next(input)
}

/// Empty lines and comments.
fn blank(input: &mut Input<'_>) -> ModalResult<()> {
    loop {
        gap(input)?;
        comment(input)?;
        if opt('\n').parse_next(input)?.is_none() {
            return Ok(());
        }
    }
}

fn end_of_line(input: &mut Input<'_>) -> ModalResult<()> {
    gap(input)?;
    comment(input)?;
    match input.chars().next() {
        None | Some('\n' | '}') => Ok(()),
        Some(_) => expected(input, "the end of the line"),
    }
}

fn peek_word<'i>(input: &mut Input<'i>) -> &'i str {
    let text: &'i str = input.as_ref();
    text.split(|letter| !is_name(letter)).next().unwrap_or("")
}

fn word<'i>(input: &mut Input<'i>, what: &'static str) -> ModalResult<&'i str> {
    gap(input)?;
    if peek_word(input).is_empty() {
        return expected(input, what);
    }
    let name = take_while(1.., is_name).parse_next(input)?;
    gap(input)?;
    Ok(name)
}

fn name(input: &mut Input<'_>, what: &'static str) -> ModalResult<String> {
    gap(input)?;
    match peek_word(input).chars().next() {
        Some(letter) if letter.is_alphabetic() || letter == '_' => Ok(word(input, what)?.to_owned()),
        _ => expected(input, what),
    }
}

/// Takes `keyword` if it stands here.
fn taken(input: &mut Input<'_>, keyword: &str) -> bool {
    let found = gap(input).is_ok() && peek_word(input) == keyword;
    if found {
        input.next_slice(keyword.len());
        let _ = gap(input);
    }
    found
}

fn keyword(input: &mut Input<'_>, keyword: &str, what: &'static str) -> ModalResult<()> {
    if taken(input, keyword) { Ok(()) } else { expected(input, what) }
}

fn sign(input: &mut Input<'_>, sign: &'static str, what: &'static str) -> ModalResult<()> {
    gap(input)?;
    if !input.as_ref().starts_with(sign) {
        return expected(input, what);
    }
    input.next_slice(sign.len());
    gap(input)
}

fn signed(input: &mut Input<'_>, sign: &str) -> bool {
    let found = gap(input).is_ok() && input.as_ref().starts_with(sign);
    if found {
        input.next_slice(sign.len());
        let _ = gap(input);
    }
    found
}

fn number_to(input: &mut Input<'_>, max: u64, what: &'static str) -> ModalResult<u64> {
    gap(input)?;
    let start = input.checkpoint();
    let digits: Option<&str> = opt(digit1).parse_next(input)?;
    let number = digits.and_then(|digits| digits.parse::<u64>().ok()).filter(|number| *number <= max);
    let ends = !input.chars().next().is_some_and(|letter| is_name(letter) && letter != '.');
    match number {
        Some(number) if ends => {
            gap(input)?;
            Ok(number)
        }
        _ => {
            input.reset(&start);
            expected(input, what)
        }
    }
}

fn value(input: &mut Input<'_>) -> ModalResult<u32> {
    Ok(number_to(input, u64::from(u32::MAX), "a value from 0 to 4294967295")? as u32)
}

fn length(input: &mut Input<'_>, what: &'static str) -> ModalResult<usize> {
    Ok(number_to(input, ELEMENTS_MAX, what)? as usize)
}

/// A buffer of more makes a run slow and shows nothing new.
const ELEMENTS_MAX: u64 = 1 << 16;

fn quoted<'i>(input: &mut Input<'i>, what: &'static str) -> ModalResult<&'i str> {
    gap(input)?;
    if !input.as_ref().starts_with('"') {
        return expected(input, what);
    }
    let text: Option<&str> = opt(delimited('"', take_till(0.., ('"', '\n')), '"')).parse_next(input)?;
    match text {
        Some(text) => Ok(text),
        None => expected(input, "a text in quotes that ends on its line"),
    }
}

fn list<'i, T>(input: &mut Input<'i>, mut item: impl FnMut(&mut Input<'i>) -> ModalResult<T>) -> ModalResult<Vec<T>> {
    let mut items = vec![item(input)?];
    while signed(input, ",") {
        items.push(item(input)?);
    }
    Ok(items)
}

fn names(input: &mut Input<'_>, what: &'static str) -> ModalResult<Vec<String>> {
    list(input, |input| name(input, what))
}

fn place(input: &mut Input<'_>) -> ModalResult<Place> {
    let name = name(input, "the name of memory, as in `x` or `x[0..4]`")?;
    if !signed(input, "[") {
        return Ok(Place { name, range: None });
    }
    let start = length(input, "the first element of the range")?;
    sign(input, "..", "`..`")?;
    let end = length(input, "the end of the range")?;
    sign(input, "]", "`]`")?;
    Ok(Place { name, range: Some((start, end)) })
}

fn on(input: &mut Input<'_>) -> ModalResult<String> {
    keyword(input, "on", "`on` and a stream")?;
    name(input, "the name of a stream or capture")
}

fn assigned(input: &mut Input<'_>) -> ModalResult<Option<u32>> {
    if !input.as_ref().starts_with("==") && signed(input, "=") { value(input).map(Some) } else { Ok(None) }
}

fn compared(input: &mut Input<'_>) -> ModalResult<Option<u32>> {
    if signed(input, "==") { value(input).map(Some) } else { Ok(None) }
}

fn known<'i, T>(input: &mut Input<'i>, what: &'static str, find: impl Fn(&str) -> Option<T>) -> ModalResult<T> {
    gap(input)?;
    match find(peek_word(input)) {
        Some(found) => {
            word(input, what)?;
            Ok(found)
        }
        None => expected(input, what),
    }
}

fn line_of_contract(input: &mut Input<'_>) -> ModalResult<Line> {
    known(input, vocabulary::LINE, |word| Line::ALL.iter().copied().find(|line| line.name() == word))
}

fn profile(input: &mut Input<'_>) -> ModalResult<String> {
    known(input, vocabulary::PROFILE, |word| Profile::NAMES.contains(&word).then(|| word.to_owned()))
}

fn call(input: &mut Input<'_>) -> ModalResult<Call> {
    known(input, vocabulary::CALL, |word| CALLS.iter().copied().find(|call| call.name() == word))
}

fn code(input: &mut Input<'_>) -> ModalResult<Code> {
    known(input, vocabulary::CODE, |word| {
        let by_name = Code::NAMED.iter().copied().find(|code| code.name() == word);
        by_name.or_else(|| word.parse().ok().filter(|number| *number > 0).map(Code))
    })
}

// --- the file

fn file(input: &mut Input<'_>) -> ModalResult<Scenario> {
    let mut scenario = Scenario::default();
    loop {
        blank(input)?;
        if input.is_empty() {
            return Ok(scenario);
        }
        if !header(input, &mut scenario)? {
            part(input, &mut scenario)?;
        }
        end_of_line(input)?;
        if input.as_ref().starts_with('}') {
            return expected(input, "a step, `thread`, `finally` or the end of the file");
        }
    }
}

/// A line about the whole file; `false` where the line is something else.
fn header(input: &mut Input<'_>, scenario: &mut Scenario) -> ModalResult<bool> {
    let first = peek_word(input);
    if !["scenario", "source", "kind", "keeps", "profile", "caught", "uncaught", "pool", "memory", "depth", "leaks"]
        .contains(&first)
    {
        return Ok(false);
    }
    word(input, "a line")?;
    match first {
        "scenario" => scenario.title = quoted(input, "a title in quotes")?.to_owned(),
        "source" => scenario.sources.extend(list(input, source)?),
        "kind" => scenario.kind = name(input, "a word for the group")?,
        "keeps" => scenario.keeps.extend(list(input, line_of_contract)?),
        "profile" => scenario.profiles = profiles(input)?,
        "caught" => scenario.defects.push(defect(input)?),
        "pool" => scenario.pool = Some(number_to(input, 4096, "a number of streams from 0 to 4096")? as usize),
        "memory" => scenario.memory = Some(number_to(input, DEVICE_BYTES_MAX, "a number of bytes up to 268435456")?),
        "depth" => {
            scenario.depth = Some(number_to(input, 4096, "a number of operations from 0 to 4096")?.max(1) as usize)
        }
        _ => {
            keyword(input, "because", "`because` and a reason in quotes")?;
            let reason = Some(quoted(input, "a reason in quotes")?.to_owned());
            if first == "leaks" {
                scenario.leaks = reason;
            } else {
                scenario.uncaught = reason;
            }
        }
    }
    Ok(true)
}

/// A public report, as in `rmm#2489`, or words in quotes.
fn source(input: &mut Input<'_>) -> ModalResult<String> {
    gap(input)?;
    if input.as_ref().starts_with('"') {
        return Ok(quoted(input, "a source")?.to_owned());
    }
    let named = take_while(1.., |letter| is_name(letter) || matches!(letter, '#' | '/'));
    let text: Option<&str> = opt(named).parse_next(input)?;
    match text {
        Some(text) => Ok(text.to_owned()),
        None => expected(input, "a source, as in `rmm#2489` or in quotes"),
    }
}

fn profiles(input: &mut Input<'_>) -> ModalResult<Profiles> {
    if !taken(input, "all") {
        return Ok(Profiles::Only(list(input, profile)?));
    }
    if taken(input, "except") { Ok(Profiles::Except(list(input, profile)?)) } else { Ok(Profiles::All) }
}

fn defect(input: &mut Input<'_>) -> ModalResult<Defect> {
    keyword(input, "by", "`by` and the name of a defect")?;
    let name = known(input, vocabulary::DEFECT, |word| vocabulary::is_defect(word).then(|| word.to_owned()))?;
    keyword(input, "as", "`as` and a line of the contract")?;
    let line = line_of_contract(input)?;
    let profile = if taken(input, "on") { Some(profile(input)?) } else { None };
    Ok(Defect { name, line, profile })
}

/// A thread, the last steps, or a step of the setup.
fn part(input: &mut Input<'_>, scenario: &mut Scenario) -> ModalResult<()> {
    if taken(input, "thread") {
        let name = name(input, "the name of a thread")?;
        let steps = block(input)?;
        scenario.threads.push(Thread { name, steps });
    } else if taken(input, "finally") {
        scenario.finally.extend(block(input)?);
    } else if scenario.threads.is_empty() && scenario.finally.is_empty() {
        let step = step(input)?;
        scenario.setup.push(step);
    } else {
        return expected(input, "`thread` or `finally`: steps of the first thread stand before those");
    }
    Ok(())
}

fn block(input: &mut Input<'_>) -> ModalResult<Vec<Step>> {
    sign(input, "{", "`{` and steps")?;
    let mut steps = Vec::new();
    loop {
        blank(input)?;
        if signed(input, "}") {
            return Ok(steps);
        }
        if input.is_empty() {
            return expected(input, "`}`");
        }
        steps.push(step(input)?);
        end_of_line(input)?;
    }
}

fn step(input: &mut Input<'_>) -> ModalResult<Step> {
    let offset = input.current_token_start();
    let action = action(input)?;
    let outcome = outcome(input)?;
    Ok(Step { line: u32::try_from(offset).unwrap_or(u32::MAX), action, outcome })
}

fn outcome(input: &mut Input<'_>) -> ModalResult<Outcome> {
    if taken(input, "fails") {
        return Ok(Outcome::Fails(errors(input)?));
    }
    if taken(input, "may") {
        keyword(input, "fail", "`fail`")?;
        return Ok(Outcome::MayFail(errors(input)?));
    }
    Ok(Outcome::Works)
}

fn errors(input: &mut Input<'_>) -> ModalResult<Vec<String>> {
    let is_code =
        |word: &str| word.strip_prefix("lost-").is_some_and(|code| code.bytes().all(|digit| digit.is_ascii_digit()));
    let is_error = |word: &str| word == "any" || ERRORS.contains(&word) || is_code(word);
    let names = list(input, |input| known(input, vocabulary::ERROR, |word| is_error(word).then(|| word.to_owned())))?;
    Ok(if names.iter().any(|name| name == "any") { Vec::new() } else { names })
}

// --- steps

fn action(input: &mut Input<'_>) -> ModalResult<Action> {
    gap(input)?;
    let start = input.checkpoint();
    let first = word(input, vocabulary::STEP)?;
    let found = match first {
        "read" | "write" | "launch" | "library" | "copy" | "fill" | "upload" | "fetch" | "completion" => {
            device_work(input, first)?
        }
        "stream" | "take" | "clone" | "buffer" | "host" | "remap" | "wrap" | "pinned" | "record" => {
            making(input, first)?
        }
        "fork" if taken(input, "process") => Action::Mishap(Mishap::Lose(Code(NOT_INITIALIZED))),
        "capture" | "fork" | "join" | "instantiate" | "replay" | "update" => capture(input, first)?,
        "view" | "scope" | "quiet" | "repeat" | "if" | "lock" | "function" => nested(input, first)?,
        "fail" | "skip" | "hang" | "lose" | "reset" | "unload" => Action::Mishap(mishap(input, first)?),
        "foreign" => Action::Foreign(foreign(input)?),
        _ => match plain(input, first)? {
            Some(action) => action,
            None => {
                input.reset(&start);
                return expected(input, vocabulary::STEP);
            }
        },
    };
    Ok(found)
}

/// What the child of a fork gets from every call.
const NOT_INITIALIZED: i32 = 3;

fn device_work(input: &mut Input<'_>, first: &str) -> ModalResult<Action> {
    Ok(match first {
        "read" => {
            let reads = list(input, place)?;
            Action::Launch { queue: on(input)?, reads, writes: Vec::new(), value: None, library: false }
        }
        "write" => {
            let writes = list(input, place)?;
            let value = assigned(input)?;
            Action::Launch { queue: on(input)?, reads: Vec::new(), writes, value, library: false }
        }
        "launch" | "library" => launch(input, first == "library")?,
        "copy" | "upload" => {
            let from = place(input)?;
            keyword(input, "to", "`to` and memory")?;
            let (to, queue) = (place(input)?, on(input)?);
            if first == "copy" { Action::Copy { from, to, queue } } else { Action::Upload { from, to, queue } }
        }
        "fill" => {
            let to = place(input)?;
            keyword(input, "with", "`with` and a byte")?;
            let byte = number_to(input, 255, "a byte from 0 to 255")? as u8;
            Action::Fill { to, byte, queue: on(input)? }
        }
        "fetch" => {
            let (from, queue) = (place(input)?, on(input)?);
            if taken(input, "as") {
                Action::FetchLater { from, queue, name: name(input, "a name for the future")? }
            } else {
                Action::Fetch { from, queue, value: compared(input)? }
            }
        }
        _ => {
            keyword(input, "of", "`of` and a stream")?;
            let queue = name(input, "the name of a stream")?;
            keyword(input, "as", "`as` and a name for the future")?;
            Action::Completion { queue, name: name(input, "a name for the future")? }
        }
    })
}

fn launch(input: &mut Input<'_>, library: bool) -> ModalResult<Action> {
    let queue = on(input)?;
    let reads = if taken(input, "reads") { list(input, place)? } else { Vec::new() };
    let writes = if taken(input, "writes") { list(input, place)? } else { Vec::new() };
    if reads.is_empty() && writes.is_empty() {
        return expected(input, "`reads` or `writes` and memory");
    }
    if reads.len() > ARGUMENTS_MAX || writes.len() > ARGUMENTS_MAX {
        return expected(input, "at most 4 places after `reads` and 4 after `writes`");
    }
    Ok(Action::Launch { queue, reads, writes, value: assigned(input)?, library })
}

/// Kernels of the runner exist for so many places to read and as many to write.
const ARGUMENTS_MAX: usize = 4;

fn making(input: &mut Input<'_>, first: &str) -> ModalResult<Action> {
    Ok(match first {
        "stream" | "take" => {
            let names = names(input, "the name of a stream")?;
            Action::Stream { names, kind: stream_kind(input)? }
        }
        "clone" => {
            let of = name(input, "the name of a stream, a buffer or a wrap")?;
            keyword(input, "as", "`as` and a name for the clone")?;
            Action::Clone { name: name(input, "a name for the clone")?, of }
        }
        "buffer" => {
            let name = name(input, "a name for the buffer")?;
            let len = length(input, "a number of elements")?;
            Action::Buffer { name, len, queue: on(input)? }
        }
        "host" => {
            let name = name(input, "a name for the host memory")?;
            let len = length(input, "a number of elements")?;
            Action::Host { name, len, value: assigned(input)?.unwrap_or(0) }
        }
        "remap" => Action::Remap { name: name(input, "the name of host memory")? },
        "pinned" => {
            let name = name(input, "a name for the memory")?;
            Action::Pinned { name, len: length(input, "a number of elements")? }
        }
        "record" => {
            let name = name(input, "a name for the event")?;
            Action::Record { name, queue: on(input)? }
        }
        _ => {
            let kind = if taken(input, "raw") { WrapKind::Raw } else { WrapKind::Owned };
            let name = name(input, "a name for the wrap")?;
            sign(input, "=", "`=` and host memory")?;
            Action::Wrap { name, kind, of: place(input)? }
        }
    })
}

fn stream_kind(input: &mut Input<'_>) -> ModalResult<StreamKind> {
    if taken(input, "adopted") {
        return Ok(StreamKind::Adopted);
    }
    if !taken(input, "priority") {
        return Ok(StreamKind::Pooled(Priority::Normal));
    }
    let priority = known(input, "low, normal or high", |word| match word {
        "low" => Some(Priority::Low),
        "normal" => Some(Priority::Normal),
        "high" => Some(Priority::High),
        _ => None,
    });
    priority.map(StreamKind::Pooled)
}

fn capture(input: &mut Input<'_>, first: &str) -> ModalResult<Action> {
    Ok(match first {
        "capture" => {
            let graph = name(input, "a name for the graph")?;
            keyword(input, "as", "`as` and a name for the capture's queue")?;
            let queue = name(input, "a name for the capture's queue")?;
            Action::Capture { graph, queue, steps: block(input)? }
        }
        "fork" => {
            let from = name(input, "the name of a capture's queue")?;
            keyword(input, "as", "`as` and a name for the fork")?;
            Action::Fork { name: name(input, "a name for the fork")?, from }
        }
        "join" => {
            let name = name(input, "the name of a fork")?;
            keyword(input, "into", "`into` and a queue of the same capture")?;
            Action::Join { name, into: self::name(input, "the name of a capture's queue")? }
        }
        "replay" => {
            let name = name(input, "the name of an executable or a graph")?;
            Action::Replay { name, queue: on(input)? }
        }
        "update" => {
            let name = name(input, "the name of an executable")?;
            keyword(input, "from", "`from` and a graph")?;
            Action::Update { name, graph: self::name(input, "the name of a graph")? }
        }
        _ => {
            let graph = name(input, "the name of a graph")?;
            keyword(input, "as", "`as` and a name for the executable")?;
            Action::Instantiate { name: name(input, "a name for the executable")?, graph }
        }
    })
}

fn nested(input: &mut Input<'_>, first: &str) -> ModalResult<Action> {
    Ok(match first {
        "view" => {
            let write = taken(input, "write");
            if !write {
                keyword(input, "read", "`read` or `write`")?;
            }
            let at = name(input, "the name of a wrap")?;
            Action::View { at, write, steps: block(input)? }
        }
        "scope" => Action::Scope { steps: block(input)? },
        "quiet" => Action::Quiet { steps: block(input)? },
        "repeat" => {
            let times = number_to(input, 10_000, "how many times, up to 10000")? as u32;
            Action::Repeat { times, steps: block(input)? }
        }
        "if" => Action::If { name: name(input, "a name that may stand for something")?, steps: block(input)? },
        "lock" => Action::Lock { name: name(input, "a name for the lock")?, steps: block(input)? },
        _ => {
            let queue = on(input)?;
            Action::Function { queue, steps: block(input)? }
        }
    })
}

fn nth(input: &mut Input<'_>) -> ModalResult<u64> {
    gap(input)?;
    let is_number = input.chars().next().is_some_and(|letter| letter.is_ascii_digit());
    if is_number { Ok(number_to(input, 1 << 32, "which one, from 1")?.max(1)) } else { Ok(1) }
}

fn mishap(input: &mut Input<'_>, first: &str) -> ModalResult<Mishap> {
    Ok(match first {
        "fail" => {
            let call = call(input)?;
            let nth = nth(input)?;
            let always = taken(input, "always");
            let late = taken(input, "after");
            if late {
                keyword(input, "effect", "`effect`: the call fails after it has had its effect")?;
            }
            let code = if taken(input, "with") { code(input)? } else { Code::INVALID_VALUE };
            Mishap::Call { call, nth, always, late, code }
        }
        "skip" => {
            keyword(input, "function", "`function`")?;
            Mishap::SkipFunction(nth(input)?)
        }
        "hang" if taken(input, "function") => Mishap::HangFunction(nth(input)?),
        "hang" => {
            keyword(input, "operation", "`function` or `operation`")?;
            Mishap::HangOperation(nth(input)?)
        }
        "reset" => {
            keyword(input, "device", "`device`")?;
            Mishap::Reset
        }
        "unload" => {
            keyword(input, "driver", "`driver`")?;
            Mishap::Lose(Code::DRIVER_UNLOADING)
        }
        _ => {
            keyword(input, "device", "`device`")?;
            let at = if taken(input, "at") { Some(nth(input)?) } else { None };
            let code = if taken(input, "with") { code(input)? } else { Code::LAUNCH_FAILURE };
            at.map_or(Mishap::Lose(code), |at| Mishap::LoseAt(at, code))
        }
    })
}

fn foreign(input: &mut Input<'_>) -> ModalResult<Foreign> {
    let what = "begin, end, pin, unpin or call";
    let start = input.checkpoint();
    Ok(match word(input, what)? {
        "begin" => {
            let name = name(input, "a name for the capture")?;
            let mode = known(input, "a mode: global, thread-local or relaxed", |word| match word {
                "global" => Some(CaptureMode::Global),
                "thread-local" => Some(CaptureMode::ThreadLocal),
                "relaxed" => Some(CaptureMode::Relaxed),
                _ => None,
            })?;
            Foreign::Begin { name, mode, announced: taken(input, "announced") }
        }
        "end" => Foreign::End { name: name(input, "the name of a foreign capture")? },
        "pin" => Foreign::Pin(place(input)?),
        "unpin" => Foreign::Unpin(place(input)?),
        "call" => {
            let call = known(input, vocabulary::RAW_CALL, |word| RAW_CALLS.contains(&word).then(|| word.to_owned()))?;
            let queue = if taken(input, "on") { Some(name(input, "the name of a stream")?) } else { None };
            Foreign::Call(call, queue)
        }
        _ => {
            input.reset(&start);
            return expected(input, what);
        }
    })
}

/// Steps of a word and little more.
fn plain(input: &mut Input<'_>, first: &str) -> ModalResult<Option<Action>> {
    Ok(Some(match first {
        "await" => {
            let name = name(input, "the name of a future")?;
            Action::Await { name, value: compared(input)? }
        }
        "look" => {
            let at = place(input)?;
            Action::Look { at, value: compared(input)? }
        }
        "poke" => {
            let at = place(input)?;
            sign(input, "=", "`=` and a value")?;
            Action::Poke { at, value: value(input)? }
        }
        "free" => {
            let name = name(input, "the name of a buffer or a wrap")?;
            let now = taken(input, "now").then_some(FreedAs::Now);
            let freed = now.or_else(|| taken(input, "deferred").then_some(FreedAs::Deferred));
            Action::Free { name, freed }
        }
        "unwrap" => Action::Unwrap { name: name(input, "the name of a wrap")? },
        "drop" | "give" | "cancel" => Action::Drop { names: names(input, "the name of what is dropped")? },
        "forget" => Action::Forget { names: names(input, "the name of what is forgotten")? },
        "sync" => Action::Sync { name: name(input, "the name of a stream, memory or an event")? },
        "ask" => {
            let name = name(input, "the name of a stream, memory or an event")?;
            let busy = taken(input, "busy").then_some(true);
            Action::Ask { name, busy: busy.or_else(|| taken(input, "idle").then_some(false)) }
        }
        "order" => {
            let queue = name(input, "the name of a stream")?;
            keyword(input, "after", "`after` and an event")?;
            Action::Order { queue, after: name(input, "the name of an event")? }
        }
        "signal" => Action::Signal { name: name(input, "a name for the signal")? },
        "wait" => Action::Wait { name: name(input, "the name of a signal")? },
        "hold" => Action::Hold { queue: name(input, "the name of a stream")? },
        "release" => Action::Release { queue: name(input, "the name of a stream")? },
        "abort" => Action::Abort,
        "panic" => Action::Panic,
        "poll" => poll(input)?,
        "destroy" => {
            let stream = name(input, "the name of an adopted stream")?;
            keyword(input, "raw", "`raw`: other code destroys its stream; a stream of the pool is let go by `drop`")?;
            Action::Foreign(Foreign::Destroy(stream))
        }
        "trim" => Action::Trim,
        "shutdown" => Action::Shutdown { clean: taken(input, "clean") },
        "expect" => expectation(input)?,
        _ => return Ok(None),
    }))
}

/// A turn of the runtime, or one poll of a future.
fn poll(input: &mut Input<'_>) -> ModalResult<Action> {
    gap(input)?;
    if peek_word(input).is_empty() || matches!(peek_word(input), "fails" | "may") {
        return Ok(Action::Poll);
    }
    let name = name(input, "the name of a future")?;
    let ready = taken(input, "ready").then_some(true);
    Ok(Action::PollOnce { name, ready: ready.or_else(|| taken(input, "pending").then_some(false)) })
}

fn expectation(input: &mut Input<'_>) -> ModalResult<Action> {
    let figure = if taken(input, "calls") {
        Figure::Calls(call(input)?)
    } else {
        Figure::Runtime(known(input, vocabulary::FIGURE, |word| FIGURES.contains(&word).then(|| word.to_owned()))?)
    };
    gap(input)?;
    let relations = [Relation::Equal, Relation::Unequal, Relation::AtMost, Relation::AtLeast];
    let Some(relation) = relations.into_iter().find(|relation| signed(input, relation.sign())) else {
        return expected(input, "==, !=, <= or >=");
    };
    let bound = number_to(input, u64::MAX, "a number")?;
    Ok(Action::Expect { figure, relation, bound })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse(text).expect_err("the text is no scenario").to_string()
    }

    #[test]
    fn errors_say_where_and_what() {
        let cases = [
            ("strem A", "line 1, column 1: expected a step (stream, buffer"),
            ("stream A\n  buffer x of A", "line 2, column 12: expected a number of elements, found `of`"),
            ("read x", "line 1, column 7: expected `on` and a stream, found the end of the file"),
            ("thread T {\n drop x\n", "line 3, column 1: expected `}`, found the end of the file"),
            ("keeps O1, Q9", "line 1, column 11: expected a line of the contract, as in `O1`, found `Q9`"),
            ("profile cuda-12", "line 1, column 9: expected a profile"),
            ("fail host_registr", "line 1, column 6: expected a call of the driver"),
            ("sync A B", "line 1, column 8: expected the end of the line, found `B`"),
            ("drop x }", "line 1, column 8: expected a step, `thread`"),
            ("wrap w = h[4.]", "line 1, column 13: expected `..`, found `.`"),
            ("scenario \"open", "line 1, column 10: expected a text in quotes"),
        ];
        for (text, start) in cases {
            let message = message(text);
            assert!(message.starts_with(start), "{text:?} gave {message:?}, not {start:?}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_crash() {
        let text = "repeat 1 {".repeat(5_000);
        assert!(message(&text).contains("at most 12 blocks"));
    }

    #[test]
    fn steps_know_their_lines_also_inside_blocks() {
        let text = "# two\nstream A\n\nthread T {\n  quiet {\n    drop x  # here\n  }\n}\n";
        let scenario = parse(text).expect("a scenario");
        assert_eq!(scenario.setup[0].line, 2);
        assert_eq!(scenario.threads[0].steps[0].line, 5);
        assert_eq!(scenario.threads[0].steps[0].action.steps()[0].line, 6);
    }

    #[test]
    fn a_line_says_all_it_can() {
        let text =
            "caught by o1_no_edge as O1 on cuda-13\nlaunch on A reads x, y[1..2] writes z = 3 may fail lost, host-view";
        let scenario = parse(text).expect("a scenario");
        assert_eq!(scenario.defects[0].profile.as_deref(), Some("cuda-13"));
        let step = &scenario.setup[0];
        assert_eq!(step.outcome, Outcome::MayFail(vec!["lost".into(), "host-view".into()]));
        let Action::Launch { reads, writes, value, .. } = &step.action else { panic!("a launch") };
        assert_eq!((reads.len(), writes.len(), *value), (2, 1, Some(3)));
        assert_eq!(reads[1].range, Some((1, 2)));
    }
}
