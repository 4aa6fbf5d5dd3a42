//! What an application that is not of the table answers visibly: a switch ends with that answer.

use super::bench::{Bench, IDLE_LIMIT_MS, Running, group_becomes_idle};
use crate::clock::sleep_ms;
use crate::error::{Error, Result};
use crate::record::Answer;
use crate::settle::{is_another, is_answer, is_redrawn};
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
    /// Finds what an application that is not of the table answers visibly, whatever was done before, and asks it for that from
    /// then on: its key, or where it has none the first of those that are tried, or where it answers none of them, nothing
    /// but to draw again what it had drawn before. What it asks first is closed, and its window made as large as the screen.
    /// Where there is no answer, its picture is saved in the directory for screenshots, if there is one.
    ///
    /// # Errors
    /// Where it has ended, its picture does not rest, or it does not always answer.
    pub fn find_answer(
        &mut self,
        running: &mut Running,
        screenshots: Option<&Path>,
    ) -> Result<Answer> {
        let name = running.app.name;
        self.reach_window(running)?;
        if self.moves_by_itself()? {
            let cause = "it moves by itself: no picture of it is the last; pause it, or let it show something that rests";
            return Err(Error::new(
                "see",
                format!("{name}'s picture at rest"),
                cause,
            ));
        }
        let named = [(running.app.answer_key, running.app.click_first)];
        let is_named = !running.app.answer_key.is_empty();
        let tried = if is_named { &named } else { TRIED };
        let mut keys: Vec<&str> = tried.iter().map(|(key, _)| *key).collect();
        keys.dedup();
        let redrawn = (!is_named).then_some(&("", false));
        for &(key, click) in tried.iter().chain(redrawn) {
            running.app.answer_key = key;
            if click && !running.app.click_first {
                running.app.click_first = true;
                self.focus_content(running)?;
            }
            if self.always_answers(running)? {
                let click_first = running.app.click_first;
                let first = if click_first { " after a click" } else { "" };
                match key.is_empty() {
                    false => eprintln!("{name} answers the key {key}{first}"),
                    true => eprintln!(
                        "{name} always answers none of the keys {}: its switches end when its picture is drawn again",
                        keys.join(", ")
                    ),
                }
                return Ok(Answer {
                    key: key.to_owned(),
                    click_first,
                });
            }
        }
        Err(self.no_answer(running, &keys, screenshots)?)
    }

    /// Closes what an application asks or tells first over its window, as somebody does who wants none of it, and goes to its
    /// window. Where all that it shows is a question, that is its window: many end without an answer.
    fn reach_window(&mut self, running: &mut Running) -> Result<()> {
        const DIALOGS_MAX: usize = 6;
        let mut pressed = (0, "");
        self.comes_to_rest(running);
        for _ in 0..DIALOGS_MAX {
            let (dialogs, others) = self.shown()?;
            let latest = dialogs.last().filter(|_| !others.is_empty());
            let Some(&dialog) = latest else {
                break;
            };
            // One that Escape does not close may have no answer but those that it offers.
            let key = match pressed {
                (window, "Escape") if window == dialog => "Return",
                _ => "Escape",
            };
            let (name, title) = (running.app.name, self.display.title(dialog)?);
            eprintln!("{name} shows {title:?} first: {key} is pressed");
            // It may be gone meanwhile.
            if self.display.activate_and_wait(dialog).is_ok() {
                self.type_keys(&[key])?;
            }
            pressed = (dialog, key);
            self.comes_to_rest(running);
            if running.has_ended() {
                let cause = format!(
                    "it has ended since {title:?} was answered by {key}: answer that for it once, and give it its settings \
                     (-- env HOME=DIR COMMAND)"
                );
                return Err(Error::new("answer the question of", name, cause));
            }
        }
        let (dialogs, others) = self.shown()?;
        let its = if others.is_empty() { dialogs } else { others };
        if !its.contains(&running.window) {
            let active = self.display.active()?;
            let latest = its.last().copied();
            running.window = match its.contains(&active) {
                true => active,
                false => latest.unwrap_or(running.window),
            };
        }
        self.check_window(running)?;
        self.display.maximize(running.window)?;
        self.focus_content(running)
    }

    /// The dialogs and the other windows that are shown by an application.
    fn shown(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        let (mut dialogs, mut others) = (Vec::new(), Vec::new());
        for window in self.display.windows()? {
            match self.display.is_dialog(window)? {
                true => dialogs.push(window),
                false if window != self.other.window => others.push(window),
                false => {}
            }
        }
        Ok((dialogs, others))
    }

    /// What to say of an application that does not always answer.
    fn no_answer(
        &mut self,
        running: &Running,
        keys: &[&str],
        screenshots: Option<&Path>,
    ) -> Result<Error> {
        self.check_window(running)?;
        let name = running.app.name;
        let picture = match screenshots {
            Some(directory) => self.screen.save(directory, name)?.display().to_string(),
            None => "--screenshots DIR saves it".to_owned(),
        };
        let what = format!("an answer of {name} to {}", keys.join(", nor to "));
        let cause = format!(
            "its picture ({picture}) stays as it is, or sometimes does, and is another once it was hidden: name a key that \
             always changes it (--answer-key), let it show something longer, have its content clicked at first (--click), or \
             where it asks something first, give it its settings (-- env HOME=DIR COMMAND)"
        );
        Ok(Error::new("see", what, cause))
    }

    /// Whether the picture changes, beyond a caret or a wheel, while nobody does anything.
    fn moves_by_itself(&mut self) -> Result<bool> {
        const WATCHED_MS: u64 = 1_000;
        // It may still be about to begin.
        const TIMES: u32 = 5;
        for _ in 0..TIMES {
            let before = self.screen.tiles()?;
            sleep_ms(WATCHED_MS);
            if !is_another(&self.screen.tiles()?, &before) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an application answers as it is, and after each of the things that are done in it between switches.
    fn always_answers(&mut self, running: &Running) -> Result<bool> {
        let answers = match running.app.answer_key.is_empty() {
            true => Self::draws_again,
            false => Self::answers_key,
        };
        let as_it_is: &[&str] = &[];
        let contexts = running.app.contexts.iter().map(|context| context.keys);
        for keys in std::iter::once(as_it_is).chain(contexts) {
            self.type_keys(keys)?;
            if !answers(self, running)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether its key changes its picture.
    fn answers_key(&mut self, running: &Running) -> Result<bool> {
        self.comes_to_rest(running);
        let before = self.screen.tiles()?;
        self.type_keys(&[running.app.answer_key])?;
        self.comes_to_rest(running);
        Ok(is_answer(&self.screen.tiles()?, &before))
    }

    /// Whether it draws what it had drawn, once another window was over it.
    fn draws_again(&mut self, running: &Running) -> Result<bool> {
        self.comes_to_rest(running);
        let left = self.screen.tiles()?;
        self.display.activate_and_wait(self.other.window)?;
        self.comes_to_rest(running);
        self.activate(running)?;
        self.comes_to_rest(running);
        Ok(is_redrawn(&self.screen.tiles()?, &left))
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
