//! Lists the statements of a source, each as a mutant that leaves it out: cargo-mutants has none of these.
//!
//! Not listed are bindings, macros, jumps (the condition around one is a statement by itself), the guards of planted defects, and
//! text for people.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::{Mutant, Place, Span};

/// What kind of change it is.
pub const GENRE: &str = "Statement";

/// Every statement that can be left out, in the order of the source.
///
/// # Panics
/// When the source is none.
pub fn statements(file: &str, source: &str) -> Vec<Mutant> {
    let mut found = Found { file, source, mutants: Vec::new() };
    found.visit_file(&syn::parse_file(source).expect("a source of Rust"));
    found.mutants
}

struct Found<'a> {
    file: &'a str,
    source: &'a str,
    mutants: Vec<Mutant>,
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        for (index, statement) in block.stmts.iter().enumerate() {
            let syn::Stmt::Expr(expression, semicolon) = statement else { continue };
            // What ends a block without a semicolon is its value, unless it can have none.
            let is_value = semicolon.is_none() && index + 1 == block.stmts.len() && !is_unit(expression);
            if !is_value && can_go(expression) {
                self.add(expression);
            }
        }
        visit::visit_block(self, block);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let is_test = matches!(item, syn::Item::Mod(module) if module.ident == "tests");
        if !is_test {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !["fmt", "to_dot"].iter().any(|name| function.sig.ident == name) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}

impl Found<'_> {
    fn add(&mut self, expression: &syn::Expr) {
        let (start, end) = (expression.span().start(), expression.span().end());
        let text = &self.source[expression.span().byte_range()];
        if text.starts_with("if mutant!(") || text.starts_with("if !mutant!(") {
            return;
        }
        let place = |at: proc_macro2::LineColumn| Place { line: at.line, column: at.column + 1 };
        let first = text.lines().next().unwrap_or_default();
        self.mutants.push(Mutant {
            file: self.file.to_owned(),
            genre: GENRE.to_owned(),
            name: format!("{}:{}:{}: leave out {first}", self.file, start.line, start.column + 1),
            replacement: String::new(),
            span: Span { start: place(start), end: place(end) },
        });
    }
}

fn is_unit(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::If(condition) => condition.else_branch.is_none(),
        syn::Expr::ForLoop(_) | syn::Expr::While(_) | syn::Expr::Assign(_) => true,
        _ => false,
    }
}

fn can_go(expression: &syn::Expr) -> bool {
    use syn::Expr::{Break, Continue, Macro, Return};
    !matches!(expression, Break(_) | Continue(_) | Macro(_) | Return(_))
}
