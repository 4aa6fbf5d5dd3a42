//! What each program of the table does: its content, made from the seed, and its command line.

use crate::apps::chromium::CHROMIUM;
use crate::content;
use crate::error::Result;
use crate::site::{Site, words as command};
use std::ffi::OsString;

fn words(words: &[&str]) -> Result<Vec<OsString>> {
    Ok(command(words))
}

/// Shows the page that the switches are measured with.
pub fn chromium(site: &Site<'_>) -> Result<Vec<OsString>> {
    CHROMIUM.content.prepare(site)
}

/// Converts a document to PDF.
pub fn libreoffice(site: &Site<'_>) -> Result<Vec<OsString>> {
    let document = content::flat_document(&mut site.random(), 30);
    site.write("document.fodt", document)?;
    let installation = format!(
        "-env:UserInstallation=file://{}",
        site.directory.join("installation").display()
    );
    words(&[
        "soffice",
        &installation,
        "--headless",
        "--norestore",
        "--convert-to",
        "pdf",
        "document.fodt",
    ])
}

/// Shows a picture in its window.
pub fn gimp(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write(
        "picture.ppm",
        content::picture(&mut site.random(), 640, 480),
    )?;
    words(&["gimp", "--no-splash", "--new-instance", "picture.ppm"])
}

/// Exports an outline to HTML.
pub fn emacs(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("notes.org", content::org(&mut site.random(), 20))?;
    words(&[
        "emacs",
        "-Q",
        "--batch",
        "notes.org",
        "-f",
        "org-html-export-to-html",
    ])
}

/// Draws a drawing.
pub fn inkscape(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("drawing.svg", content::svg(&mut site.random(), 60))?;
    words(&[
        "inkscape",
        "drawing.svg",
        "--export-type=png",
        "--export-filename=drawing.png",
    ])
}

const PYTHON: &str = "\
import argparse, asyncio, csv, ctypes, decimal, difflib, email.mime.text, fractions, hashlib, html.parser
import http.client, json, logging.handlers, lzma, multiprocessing, pathlib, sqlite3, ssl, statistics, tarfile
import tempfile, unittest.mock, urllib.request, uuid, xml.etree.ElementTree as tree, zipfile
groups = {}
with open('table.csv') as file:
    for row in csv.DictReader(file):
        groups.setdefault(row['group'], []).append(decimal.Decimal(row['amount']))
root = tree.Element('groups')
for name, amounts in sorted(groups.items()):
    tree.SubElement(root, 'group', name=name, median=str(statistics.median(amounts)))
pathlib.Path('groups.xml').write_bytes(tree.tostring(root))
";

/// Imports what a typical script imports, and summarizes a table.
pub fn python3(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("table.csv", content::csv(&mut site.random(), 4_000))?;
    site.write("summarize.py", PYTHON)?;
    words(&["python3", "summarize.py"])
}

const NODE: &str = "\
const crypto = require('crypto'), fs = require('fs'), http = require('http'), path = require('path');
const readline = require('readline'), stream = require('stream'), url = require('url'), zlib = require('zlib');
const rows = JSON.parse(fs.readFileSync('table.json', 'utf8'));
const groups = new Map();
for (const row of rows) groups.set(row.group, (groups.get(row.group) || 0) + row.amount);
const text = JSON.stringify([...groups].sort());
fs.writeFileSync('groups.json.gz', zlib.gzipSync(text));
fs.writeFileSync('groups.sha256', crypto.createHash('sha256').update(text).digest('hex'));
";

/// Summarizes a table.
pub fn node(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("table.json", content::json(&mut site.random(), 4_000))?;
    site.write("summarize.js", NODE)?;
    words(&["node", "summarize.js"])
}

/// Compiles classes.
pub fn javac(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("Main.java", content::java_source(&mut site.random(), 12))?;
    words(&["javac", "-d", "classes", "Main.java"])
}

/// Shows what each commit changed.
pub fn git(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write(
        "history",
        content::git_history(&mut site.random(), 120, 300),
    )?;
    site.make(
        &["git", "init", "-q", "-b", "main", "repository"],
        "history",
    )?;
    site.make(
        &["git", "-C", "repository", "fast-import", "--quiet"],
        "history",
    )?;
    site.make(
        &["git", "-C", "repository", "reset", "-q", "--hard"],
        "history",
    )?;
    words(&["git", "-C", "repository", "log", "--stat", "-n", "60"])
}

/// Compiles a file.
pub fn gcc(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("source.c", content::c_source(&mut site.random(), 20))?;
    words(&["gcc", "-O1", "-c", "source.c", "-o", "source.o"])
}

const PERL: &str = "\
use strict; use warnings; use POSIX; use Data::Dumper; use File::Spec; use Getopt::Long; use Encode;
use List::Util qw(sum); use Storable; use Time::Local; use Digest::SHA qw(sha256_hex); use JSON::PP; use Pod::Usage;
open(my $in, '<', 'table.csv') or die; my %groups;
while (<$in>) { chomp; my (undef, $group, $amount) = split /,/; push @{$groups{$group}}, $amount if $amount =~ /^\\d/; }
open(my $out, '>', 'groups.json') or die;
print $out JSON::PP->new->canonical->encode({map { $_ => sum(@{$groups{$_}}) } keys %groups});
";

/// Summarizes a table.
pub fn perl(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("table.csv", content::csv(&mut site.random(), 4_000))?;
    site.write("summarize.pl", PERL)?;
    words(&["perl", "summarize.pl"])
}

const RUBY: &str = "\
require 'csv'; require 'digest'; require 'erb'; require 'json'; require 'net/http'; require 'optparse'; require 'set'
groups = Hash.new(0)
CSV.foreach('table.csv', headers: true) { |row| groups[row['group']] += row['amount'].to_i }
File.write('groups.html', ERB.new('<% groups.sort.each do |g, n| %><p><%= g %> <%= n %></p><% end %>').result(binding))
";

/// Summarizes a table.
pub fn ruby(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("table.csv", content::csv(&mut site.random(), 1_000))?;
    site.write("summarize.rb", RUBY)?;
    words(&["ruby", "summarize.rb"])
}

/// Encodes a sound.
pub fn ffmpeg(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("sound.wav", content::sound(&mut site.random(), 2))?;
    words(&[
        "ffmpeg",
        "-nostdin",
        "-v",
        "error",
        "-y",
        "-i",
        "sound.wav",
        "sound.flac",
    ])
}

/// Turns a source file, with its colours, into HTML.
pub fn vim(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("source.c", content::c_source(&mut site.random(), 20))?;
    site.write(
        "colour.vim",
        "runtime plugin/tohtml.vim\nfiletype on\nsyntax on\nedit source.c\nTOhtml\nwrite! source.html\nqall!\n",
    )?;
    words(&["vim", "-N", "-n", "-i", "NONE", "-es", "-S", "colour.vim"])
}

/// Lists the functions of a program, with its own Python loaded.
pub fn gdb(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write(
        "commands",
        "python import json, xml.etree.ElementTree\ninfo functions printf\ndisassemble main\n",
    )?;
    words(&["gdb", "--nx", "--batch", "-x", "commands", "/bin/bash"])
}

/// Draws a page.
pub fn gs(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("page.ps", content::postscript(&mut site.random(), 50))?;
    words(&[
        "gs",
        "-q",
        "-dSAFER",
        "-dNOPAUSE",
        "-dBATCH",
        "-sDEVICE=png16m",
        "-r72",
        "-sOutputFile=page.png",
        "page.ps",
    ])
}

/// Draws a graph.
pub fn dot(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("graph.dot", content::graph(&mut site.random(), 40))?;
    words(&["dot", "-Tpng", "-o", "graph.png", "graph.dot"])
}

/// Says the name of the system.
pub fn uname(_: &Site<'_>) -> Result<Vec<OsString>> {
    words(&["uname"])
}

/// Asks a database.
pub fn sqlite3(site: &Site<'_>) -> Result<Vec<OsString>> {
    site.write("table.sql", content::sql(&mut site.random(), 20_000))?;
    if !site.directory.join("table.db").exists() {
        site.make(&["sqlite3", "table.db"], "table.sql")?;
    }
    words(&[
        "sqlite3",
        "table.db",
        "select grp, count(*), sum(amount) from t group by grp order by 3;",
    ])
}
