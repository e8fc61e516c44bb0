//! JSON as results and traces are written in it.

use std::fmt::{self, Write as _};

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Whole(u64),
    /// A finite number.
    Number(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Json>),
    /// Fields, in the order in which they are printed.
    Object(Vec<(&'static str, Json)>),
}

/// An object of these fields, in this order.
pub(crate) fn object<const N: usize>(fields: [(&'static str, Json); N]) -> Json {
    Json::Object(fields.into())
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u32> for Json {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Json>> for Json {
    fn from(values: Vec<Json>) -> Self {
        Self::List(values)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Whole(value) => value.fmt(f),
            // As `Debug` prints it, a number can be read back as the same one.
            Self::Number(value) => write!(f, "{value:?}"),
            Self::Text(text) => quoted(text, f),
            Self::List(values) => {
                f.write_char('[')?;
                for (at, value) in values.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    value.fmt(f)?;
                }
                f.write_char(']')
            }
            Self::Object(fields) => {
                f.write_char('{')?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    quoted(name, f)?;
                    write!(f, ":{value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(f, "\\{letter}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            plain => f.write_char(plain)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::{Json, object};

    #[test]
    fn what_is_printed_is_read_back() {
        let text: String = (0_u8..=127).map(char::from).chain("é\u{2028}🦀".chars()).collect();
        let value = object([
            ("text", text.as_str().into()),
            ("list", vec![Json::Null, true.into(), u64::MAX.into()].into()),
            ("numbers", vec![0.0.into(), 0.001.into(), 1.5e300.into(), (u64::MAX as f64 / 1_000.0).into()].into()),
            ("none", None::<u64>.into()),
            ("empty", Json::List(Vec::new())),
        ]);
        let read: serde_json::Value = serde_json::from_str(&value.to_string()).expect("it is JSON");
        assert_eq!(read["text"], text);
        assert_eq!(read["list"], serde_json::json!([null, true, u64::MAX]));
        assert_eq!(read["numbers"], serde_json::json!([0.0, 0.001, 1.5e300, u64::MAX as f64 / 1_000.0]));
        assert!(read["none"].is_null() && read["empty"].as_array().is_some_and(Vec::is_empty));
    }
}
