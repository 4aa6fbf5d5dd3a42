//! What an application that is not of the table answers visibly: a switch ends with that answer.

use super::bench::{Bench, IDLE_LIMIT_MS, Running, group_becomes_idle};
use crate::clock::sleep_ms;
use crate::error::{Error, Result};
use crate::record::Answer;
use crate::settle::{is_another, is_answer};
use std::path::Path;

/// What is tried where nobody named a key, each with whether the window's middle is clicked at first. Most applications
/// scroll what is longer than a page, some once their content has the focus; F11 fills the screen with the window and gives it
/// back, F9 shows and hides a part of it, where these are bound as in most.
const TRIED: &[(&str, bool)] = &[
    ("Next", false),
    ("Next", true),
    ("F11", false),
    ("F9", false),
];

impl Bench {
    /// Finds what an application that is not of the table answers visibly, whatever was done in it before, and asks it for
    /// that from then on: its key, or where it has none the first of those that are tried. Where there is none, its picture is
    /// saved in the directory for screenshots, if there is one.
    ///
    /// # Errors
    /// Where its picture does not rest, or it does not always answer.
    pub fn find_answer(
        &mut self,
        running: &mut Running,
        screenshots: Option<&Path>,
    ) -> Result<Answer> {
        let name = running.app.name;
        if self.moves_by_itself()? {
            let cause = "it moves by itself: no picture of it is the last; pause it, or let it show something that rests";
            return Err(Error::new(
                "see",
                format!("{name}'s picture at rest"),
                cause,
            ));
        }
        let named = [(running.app.answer_key, running.app.click_first)];
        let tried = match running.app.answer_key {
            "" => TRIED,
            _ => &named,
        };
        for &(key, click) in tried {
            running.app.answer_key = key;
            if click && !running.app.click_first {
                running.app.click_first = true;
                self.focus_content(running)?;
            }
            if self.always_answers(running)? {
                let click_first = running.app.click_first;
                let first = if click_first { " after a click" } else { "" };
                eprintln!("{name} answers the key {key}{first}");
                return Ok(Answer {
                    key: key.to_owned(),
                    click_first,
                });
            }
        }
        Err(self.no_answer(name, tried, screenshots)?)
    }

    /// What to say of an application that answers none of the keys that were tried.
    fn no_answer(
        &mut self,
        name: &str,
        tried: &[(&str, bool)],
        screenshots: Option<&Path>,
    ) -> Result<Error> {
        let mut keys: Vec<&str> = tried.iter().map(|(key, _)| *key).collect();
        keys.dedup();
        let picture = match screenshots {
            Some(directory) => self.screen.save(directory, name)?.display().to_string(),
            None => "--screenshots DIR saves it".to_owned(),
        };
        let what = format!("an answer of {name} to {}", keys.join(", nor to "));
        let cause = format!(
            "its picture ({picture}) stays as it is, or sometimes does: name a key that always changes it (--answer-key), let it show \
             something longer, have its content clicked at first (--click), or where it asks something first, give it its \
             settings (-- env HOME=DIR COMMAND)"
        );
        Ok(Error::new("see", what, cause))
    }

    /// Whether the picture changes, beyond a caret or a wheel, while nobody does anything.
    fn moves_by_itself(&mut self) -> Result<bool> {
        const WATCHED_MS: u64 = 1_000;
        let before = self.screen.tiles()?;
        sleep_ms(WATCHED_MS);
        Ok(is_another(&self.screen.tiles()?, &before))
    }

    /// Whether an application answers its key as it is, and after each of the things that are done in it between switches.
    fn always_answers(&mut self, running: &Running) -> Result<bool> {
        if !self.answers_key(running)? {
            return Ok(false);
        }
        for context in running.app.contexts {
            self.type_keys(context.keys)?;
            if !self.answers_key(running)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn answers_key(&mut self, running: &Running) -> Result<bool> {
        self.comes_to_rest(running);
        let before = self.screen.tiles()?;
        self.type_keys(&[running.app.answer_key])?;
        self.comes_to_rest(running);
        Ok(is_answer(&self.screen.tiles()?, &before))
    }

    fn comes_to_rest(&self, running: &Running) {
        const DRAWN_MS: u64 = 300;
        group_becomes_idle(&running.group, IDLE_LIMIT_MS);
        sleep_ms(DRAWN_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::TRIED;
    use crate::display::input;

    #[test]
    fn what_is_tried_can_be_pressed() {
        for (key, _) in TRIED {
            input::symbols(key).unwrap();
        }
        assert_eq!(TRIED[0], ("Next", false), "what changes least is first");
    }
}
