//! Writes mutants into a source, each behind `crate::schema(number)`.
//!
//! | genre | becomes |
//! |---|---|
//! | a function's value | `if crate::schema(7) { return value; }` before its body |
//! | an operator, a `!`, a field of a structure | `(if crate::schema(7) { changed } else { as it was })` |
//! | a statement | `if !crate::schema(7) { as it was; }` |
//! | a guard of an arm | the same, with `true` or `false` |
//! | an arm without a guard | a guard that is false when armed |
//!
//! Text is spliced, so that all else stays byte for byte what it was. Since one mutant is armed at a time, what is changed holds
//! no other mutant, and the text grows by what is changed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::{ARMED, Mutant, statements};

/// A source with mutants in it.
#[derive(Debug, Default)]
pub struct Woven {
    /// The text.
    pub text: String,
    /// What each mutant wrote: where an error is that mutant's own.
    own: Vec<(Range<usize>, usize)>,
    /// What each place became, with the mutants of it: an error elsewhere in it may be any one's.
    shared: Vec<(Range<usize>, Vec<usize>)>,
    /// Where something that may not be dropped after all is dropped: an error behind that speaks of a borrow may be due to it.
    drops: Vec<(usize, usize)>,
}

/// How mutants of one place are written. In the order of nesting, where two cover the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Body,
    Statement,
    Guard,
    Choice,
    /// Has no text of its own: comes after a pattern.
    Unguarded,
}

/// From which bytes to which, the longer first, in which form.
type Key = (usize, std::cmp::Reverse<usize>, Form);

struct Patch<'a> {
    range: Range<usize>,
    form: Form,
    mutants: Vec<(usize, &'a Mutant)>,
}

/// Where mutants can be: by genre and by their first byte.
#[derive(Default)]
struct Places {
    known: BTreeMap<(&'static str, usize), (Form, Range<usize>)>,
    /// The whole of the operations that the visited one is an operand of: another operator may bind them otherwise.
    whole: Option<Range<usize>>,
}

impl Places {
    fn add(&mut self, genre: &'static str, at: usize, form: Form, range: Range<usize>) {
        self.known.insert((genre, at), (form, range));
    }
}

impl<'ast> Visit<'ast> for Places {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        if let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) {
            let range = first.span().byte_range().start..last.span().byte_range().end;
            self.add("FnValue", range.start, Form::Body, range);
        }
        for statement in &block.stmts {
            if let syn::Stmt::Expr(expression, _) = statement {
                let range = expression.span().byte_range();
                self.add(statements::GENRE, range.start, Form::Statement, range);
            }
        }
        visit::visit_block(self, block);
    }

    fn visit_expr(&mut self, expression: &'ast syn::Expr) {
        let outside = self.whole.take_if(|_| !matches!(expression, syn::Expr::Binary(_)));
        visit::visit_expr(self, expression);
        self.whole = outside.or(self.whole.take());
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let outside = self.whole.take();
        // What a chain binds must stay bound after it: its operands are wholes of their own.
        if !binds(&binary.left) && !binds(&binary.right) {
            let whole = outside.clone().unwrap_or(binary.span().byte_range());
            self.add("BinaryOperator", binary.op.span().byte_range().start, Form::Choice, whole.clone());
            self.whole = Some(whole);
        }
        visit::visit_expr_binary(self, binary);
        self.whole = outside;
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.add("UnaryOperator", unary.op.span().byte_range().start, Form::Choice, unary.span().byte_range());
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, structure: &'ast syn::ExprStruct) {
        for field in &structure.fields {
            self.add("StructField", field.span().byte_range().start, Form::Choice, structure.span().byte_range());
        }
        visit::visit_expr_struct(self, structure);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let pattern = arm.pat.span().byte_range();
        if let syn::Pat::Guard(guarded) = &arm.pat {
            let guard = guarded.guard.span().byte_range();
            self.add("MatchArmGuard", guard.start, Form::Guard, guard.clone());
            self.add("MatchArm", pattern.start, Form::Guard, guard);
        } else {
            self.add("MatchArm", pattern.start, Form::Unguarded, pattern.end..pattern.end);
        }
        visit::visit_arm(self, arm);
    }
}

/// Whether `let` stands in a chain of conditions.
fn binds(condition: &syn::Expr) -> bool {
    match condition {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(chain) => binds(&chain.left) || binds(&chain.right),
        _ => false,
    }
}

/// Writes the mutants into a source; and the numbers of those that have no place in it.
///
/// # Panics
/// When the source is none.
pub fn weave(source: &str, mutants: &[(usize, &Mutant)]) -> (Woven, Vec<usize>) {
    let mut places = Places::default();
    places.visit_file(&syn::parse_file(source).expect("a source of Rust"));
    let (mut patches, mut left) = (BTreeMap::<Key, Vec<_>>::new(), Vec::new());
    for (number, mutant) in mutants {
        let start = mutant.span.start.offset(source);
        // A function that returns `impl Iterator` returns one type.
        let start = start.filter(|_| mutant.replacement != "::std::iter::empty()");
        let place = start.and_then(|start| {
            let genre = places.known.keys().find(|(genre, at)| *genre == mutant.genre && *at == start)?;
            places.known.get(genre)
        });
        match place {
            Some((form, range)) => {
                let key = (range.start, std::cmp::Reverse(range.end), *form);
                patches.entry(key).or_default().push((*number, *mutant));
            }
            None => left.push(*number),
        }
    }
    let patch = |((start, end, form), mutants): (Key, _)| Patch { range: start..end.0, form, mutants };
    let patches: Vec<_> = patches.into_iter().map(patch).collect();
    let mut woven = Woven::default();
    woven.copy(source, 0..source.len(), &patches);
    (woven, left)
}

impl Woven {
    /// The text of `range`, with the patches, all of them within it.
    fn copy(&mut self, source: &str, range: Range<usize>, mut patches: &[Patch<'_>]) {
        let mut at = range.start;
        while let [patch, rest @ ..] = patches {
            let inner = rest.iter().take_while(|inner| inner.range.end <= patch.range.end).count();
            let (inner, after) = rest.split_at(inner);
            self.text += &source[at..patch.range.start];
            self.patch(source, patch, inner);
            at = patch.range.end;
            patches = after;
        }
        self.text += &source[at..range.end];
    }

    fn patch(&mut self, source: &str, patch: &Patch<'_>, inner: &[Patch<'_>]) {
        let begin = self.text.len();
        self.text += match patch.form {
            Form::Body => "",
            Form::Statement => "if true",
            Form::Guard | Form::Choice => "(",
            Form::Unguarded => " if true",
        };
        for (number, mutant) in &patch.mutants {
            if matches!(patch.form, Form::Unguarded | Form::Statement) {
                self.text += &format!(" && !crate::schema({number})");
                continue;
            }
            self.text += &format!("if crate::schema({number}) {{ ");
            let own = self.text.len();
            self.text += &changed(source, patch, mutant);
            self.own.push((own..self.text.len(), *number));
            self.text += if patch.form == Form::Body { " } " } else { " } else " };
        }
        let (open, close) = match patch.form {
            Form::Guard | Form::Choice => ("{ ", " })"),
            Form::Statement => (" { ", "; }"),
            Form::Body | Form::Unguarded => ("", ""),
        };
        self.text += open;
        // What a body holds is not the mutants' of its value.
        let head = begin..self.text.len();
        if patch.form == Form::Statement && source[patch.range.clone()].starts_with("drop(") {
            self.drops.extend(patch.mutants.iter().map(|(number, _)| (begin, *number)));
        }
        self.copy(source, patch.range.clone(), inner);
        self.text += close;
        let shared = if patch.form == Form::Body { head } else { begin..self.text.len() };
        self.shared.push((shared, patch.mutants.iter().map(|(number, _)| *number).collect()));
    }

    /// The mutant that leaves out the last drop before these bytes.
    fn drop_before(&self, bytes: &Range<usize>) -> Vec<usize> {
        let before = self.drops.iter().rev().find(|(at, _)| *at < bytes.start);
        before.map(|(_, number)| *number).into_iter().collect()
    }

    /// The mutants that an error at these bytes speaks of.
    fn blamed(&self, bytes: &Range<usize>) -> Vec<usize> {
        let holds = |range: &Range<usize>| range.start <= bytes.start && bytes.end <= range.end;
        if let Some((_, number)) = self.own.iter().find(|(range, _)| holds(range)) {
            return vec![*number];
        }
        let within = self.shared.iter().filter(|(range, _)| holds(range));
        within.min_by_key(|(range, _)| range.len()).map(|(_, numbers)| numbers.clone()).unwrap_or_default()
    }
}

/// What stands in place of the patch while the mutant is armed.
fn changed(source: &str, patch: &Patch<'_>, mutant: &Mutant) -> String {
    match patch.form {
        Form::Body => format!("return {};", mutant.replacement),
        Form::Guard if mutant.genre == "MatchArm" => "false".to_owned(),
        Form::Guard => mutant.replacement.clone(),
        _ => {
            let span = mutant.span.bytes(source).expect("the mutant was found in this source");
            let (before, after) = (&source[patch.range.start..span.start], &source[span.end..patch.range.end]);
            // A field is deleted with its comma.
            let after = if mutant.genre == "StructField" { after.trim_start_matches(',') } else { after };
            format!("{before}{}{after}", mutant.replacement)
        }
    }
}

/// What came of each mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It can be armed.
    Woven,
    /// It has no place that this knows of.
    Left,
    /// With it, the source does not compile: by itself, or only so.
    Refused,
}

impl Fate {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Woven => "woven",
            Self::Left => "left",
            Self::Refused => "refused",
        }
    }
}

/// Weaves all mutants into the sources below `tree`, and takes out those that `packages` do not compile with, until they do.
///
/// The crate's root holds no mutant: it gets what each of them asks.
///
/// # Panics
/// When files cannot be read or written, or an error is no mutant's.
pub fn weave_tree(tree: &Path, mutants: &[Mutant], packages: &[String]) -> Vec<Fate> {
    let mut fates = vec![Fate::Woven; mutants.len()];
    let files: BTreeSet<_> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let read = |file: &&str| std::fs::read_to_string(tree.join(file)).expect("a file of the list can be read");
    let sources: BTreeMap<_, _> = files.iter().map(|file| (*file, read(file))).collect();
    add_switch(&tree.join("core/src/lib.rs"));
    loop {
        let mut written = BTreeMap::new();
        for (file, source) in &sources {
            let numbered = (1..).zip(mutants);
            let woven = |(number, mutant): &(usize, &Mutant)| mutant.file == *file && fates[number - 1] == Fate::Woven;
            let (woven, left) = weave(source, &numbered.filter(woven).collect::<Vec<_>>());
            left.into_iter().for_each(|number| fates[number - 1] = Fate::Left);
            std::fs::write(tree.join(file), &woven.text).expect("a file of the copy can be written");
            written.insert((*file).to_owned(), woven);
        }
        let refused = refused(tree, packages, &written);
        eprintln!("{} refused, of {}", refused.len(), fates.iter().filter(|fate| **fate == Fate::Woven).count());
        if refused.is_empty() {
            return fates;
        }
        refused.into_iter().for_each(|number| fates[number - 1] = Fate::Refused);
    }
}

/// Gives the crate the question that every mutant asks. A std static, which no checker sees.
fn add_switch(root: &Path) {
    let text = std::fs::read_to_string(root).expect("the crate's root can be read");
    let switch = format!(
        "/// Whether this mutant is armed.\n#[doc(hidden)]\n#[inline]\npub fn schema(number: u32) -> bool {{\n    \
         static ARMED: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| \
         std::env::var(\"{ARMED}\").ok().and_then(|number| number.parse().ok()).unwrap_or(0));\n    \
         *ARMED == number\n}}\n"
    );
    std::fs::write(root, format!("#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n{text}\n{switch}"))
        .expect("the crate's root can be written");
}

/// The mutants that the compiler complains about; none when it is content.
fn refused(tree: &Path, packages: &[String], written: &BTreeMap<String, Woven>) -> BTreeSet<usize> {
    let mut command = Command::new("cargo");
    command.current_dir(tree).args(["check", "--quiet", "--keep-going", "--message-format", "json"]);
    command.args(packages.iter().flat_map(|package| ["-p", package]));
    let output = command.output().expect("cargo can be started");
    let mut blamed = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(Value::Object(line)) = serde_json::from_str(line) else { continue };
        let Some(message) = line.get("message").filter(|message| message["level"] == "error") else { continue };
        let spans = message["spans"].as_array().into_iter().flatten();
        let (primary, other): (Vec<_>, Vec<_>) = spans.partition(|span| span["is_primary"] == true);
        let of = |spans: &[&Value], blamed: Blamed| {
            spans.iter().flat_map(|span| blame(span, written, blamed)).collect::<Vec<_>>()
        };
        // A borrow that lasts to the end of the block, since what ended it may not be dropped.
        let lasts = |span: &Value| span["label"].as_str().is_some_and(|label| label.contains("is dropped"));
        let lasts = primary.iter().chain(&other).any(|span| lasts(span));
        let mut numbers = if lasts { of(&primary, Woven::drop_before) } else { Vec::new() };
        for spans in [&primary, &other] {
            if numbers.is_empty() {
                numbers = of(spans, Woven::blamed);
            }
        }
        let aborting = message["spans"].as_array().is_none_or(Vec::is_empty);
        assert!(aborting || !numbers.is_empty(), "an error that is no mutant's: {}", message["rendered"]);
        blamed.extend(numbers);
    }
    assert!(output.status.success() || !blamed.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    blamed
}

/// Whom a woven source blames for an error at these bytes.
type Blamed = fn(&Woven, &Range<usize>) -> Vec<usize>;

/// The mutants at a span of a message, or at the place that a macro was called from.
fn blame(span: &Value, written: &BTreeMap<String, Woven>, blamed: Blamed) -> Vec<usize> {
    let byte = |name: &str| usize::try_from(span[name].as_u64()?).ok();
    let name = span["file_name"].as_str().unwrap_or_default();
    let woven = written.iter().find(|(file, _)| name.ends_with(file.as_str()));
    let bytes = byte("byte_start").zip(byte("byte_end"));
    let numbers = woven.zip(bytes).map(|((_, woven), (start, end))| blamed(woven, &(start..end))).unwrap_or_default();
    match span["expansion"]["span"] {
        Value::Object(_) if numbers.is_empty() => blame(&span["expansion"]["span"], written, blamed),
        _ => numbers,
    }
}
